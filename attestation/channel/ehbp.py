"""EHBP: how does a body travel sealed while method, path and headers stay as HTTP has them?

``{ u32 length, ciphertext }*`` under ``Ehbp-Encapsulated-Key`` and ``Ehbp-Response-Nonce``, which
are 32 bytes in hex; X25519, HKDF-SHA256 and AES-256-GCM only.  [Encrypted HTTP Body Protocol]
What it lacks beside chunked OHTTP: a final chunk, so only HTTP's own framing tells a whole body
from a cut one; the path and the headers in the seal; the key's id in the request, so a server tries
the keys it has. A request without a body is not sealed at all.
"""

from collections.abc import Iterable
from typing import Final

from attestation.channel.chunks import DEFAULT_LIMITS, ChunkLimits
from attestation.channel.encapsulation import Labels, ResponseCipher, ServerKey
from attestation.channel.errors import (
    ChannelMisuse,
    DecryptFailed,
    KeyConfigError,
    UnsupportedSuite,
)
from attestation.channel.frames import FrameOpener, FrameSealer
from attestation.channel.hpke import (
    AEAD_AES_256_GCM,
    KDF_HKDF_SHA256,
    KEM_X25519,
    PrivateKey,
    RecipientContext,
    Rng,
    SenderContext,
    Suite,
    setup_recipient,
    setup_sender,
)
from attestation.channel.keyconfig import KeyConfig, SymmetricSuite
from attestation.channel.keyring import KeyOffer

ENCAPSULATED_KEY_FIELD: Final = "ehbp-encapsulated-key"
RESPONSE_NONCE_FIELD: Final = "ehbp-response-nonce"
FIELD_BYTES: Final = 32  # of both fields, before they become hex

SUITE: Final = Suite(KEM_X25519, KDF_HKDF_SHA256, AEAD_AES_256_GCM)
OFFER: Final = KeyOffer(
    kem_id=KEM_X25519, symmetric=(SymmetricSuite(KDF_HKDF_SHA256, AEAD_AES_256_GCM),)
)
"""Published clients take a key configuration with exactly this one suite."""

_LABELS: Final = Labels(request=b"ehbp request", response=b"ehbp response")


def parse_field(value: str) -> bytes:
    """The 32 bytes of one of the two fields.

    Raises: DecryptFailed("malformed").
    """
    try:
        data = bytes.fromhex(value) if len(value) == 2 * FIELD_BYTES else b""
    except ValueError:
        data = b""
    if len(data) != FIELD_BYTES:  # fromhex skips white space
        raise DecryptFailed("malformed")
    return data


class EhbpClientRequest:
    """One request body to the holder of a key; ``enc`` goes into its field as hex.

    Raises: UnsupportedSuite when the key is not for this protocol; KeyConfigError for a bad key.
    """

    __slots__ = ("_context", "_sealer")

    def __init__(self, key_config: KeyConfig, *, rng: Rng) -> None:
        if not key_config.offers(SUITE):
            raise UnsupportedSuite(f"key {key_config.key_id} does not offer the suite of EHBP")
        ephemeral = PrivateKey.from_bytes(rng(32))
        self._context: SenderContext = setup_sender(
            key_config.public_key, _LABELS.request, SUITE, ephemeral=ephemeral
        )
        self._sealer = FrameSealer(self._context.seal)

    @property
    def enc(self) -> bytes:
        return self._context.enc

    def seal_chunk(self, data: bytes) -> bytes:
        """Wire bytes of ``data``; no bytes for none.

        Raises: TooManyChunks, BodyTooLarge at the cipher's limits.
        """
        return self._sealer.seal_chunk(data)

    def response_opener(
        self, response_nonce: bytes, *, limits: ChunkLimits = DEFAULT_LIMITS
    ) -> FrameOpener:
        """Opens the one response to this request.

        Raises: DecryptFailed for a nonce of another length.
        """
        if len(response_nonce) != FIELD_BYTES:
            raise DecryptFailed("malformed")
        return FrameOpener(ResponseCipher(self._context, response_nonce, _LABELS).open, limits)


class EhbpServerRequest:
    """Opens one request body as it arrives and seals its response.

    ``keys`` are tried on the first frame, those for this protocol alone before the others;
    ``key_id`` is known (else None) once one fits, and with ``enc`` names the request in a replay
    cache.

    Raises: DecryptFailed for an ``enc`` of another length.
    """

    __slots__ = ("_context", "_frames", "_is_finished", "_keys", "enc", "key_id")

    def __init__(
        self, keys: Iterable[ServerKey], enc: bytes, *, limits: ChunkLimits = DEFAULT_LIMITS
    ) -> None:
        if len(enc) != FIELD_BYTES:
            raise DecryptFailed("malformed")
        able = (key for key in keys if key.config.offers(SUITE))
        self._keys = sorted(able, key=lambda key: key.config.symmetric != OFFER.symmetric)
        self._frames = FrameOpener(self._open_frame, limits)
        self._context: RecipientContext | None = None
        self._is_finished = False
        self.enc = enc
        self.key_id: int | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Plaintexts of the frames that ``data`` completes.

        Raises: KeyConfigError when no key here opens the first; DecryptFailed; BodyTooLarge,
        TooManyChunks over a limit; ChannelMisuse after any of them.
        """
        return self._frames.feed(data)

    def finish(self) -> None:
        """The body has ended, as HTTP says.

        Raises: DecryptFailed("truncated") within a frame, or when there was none.
        """
        self._frames.finish()
        if self._context is None:
            raise DecryptFailed("truncated")
        self._is_finished = True

    def open_message(self, body: bytes) -> bytes:
        """The plaintext of a whole request body."""
        opened = b"".join(self.feed(body))
        self.finish()
        return opened

    def response_sealer(self, *, rng: Rng) -> "EhbpResponseSealer":
        """Seals the one response to this request.

        Raises: ChannelMisuse before ``finish``.
        """
        if self._context is None or not self._is_finished:
            raise ChannelMisuse("a request is answered after its end")
        return EhbpResponseSealer(self._context, rng)

    def _open_frame(self, aad: bytes, ciphertext: bytes | bytearray) -> bytes:
        if self._context is not None:
            return self._context.open(aad, ciphertext)
        for key in self._keys:
            try:
                context = setup_recipient(self.enc, key.private_key, _LABELS.request, SUITE)
                opened = context.open(aad, ciphertext)
            except DecryptFailed:
                continue
            self._context, self.key_id = context, key.config.key_id
            return opened
        raise KeyConfigError("no key here opens the request")


class EhbpResponseSealer:
    """Seals a response frame by frame; ``nonce`` goes into its field as hex."""

    __slots__ = ("_sealer", "nonce")

    def __init__(self, context: RecipientContext, rng: Rng) -> None:
        self.nonce = rng(FIELD_BYTES)
        self._sealer = FrameSealer(ResponseCipher(context, self.nonce, _LABELS).seal)

    def seal_chunk(self, data: bytes) -> bytes:
        """Wire bytes of ``data``; no bytes for none.

        Raises: TooManyChunks, BodyTooLarge at the cipher's limits.
        """
        return self._sealer.seal_chunk(data)
