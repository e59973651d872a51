"""EHBP: how does a body travel sealed while method, path and headers stay as HTTP has them?

``{ u32 length, ciphertext }*`` under ``Ehbp-Encapsulated-Key`` and ``Ehbp-Response-Nonce``, which
are 32 bytes in hex; X25519, HKDF-SHA256 and AES-256-GCM only.  [Encrypted HTTP Body Protocol]
What it lacks beside chunked OHTTP: a final chunk, so only HTTP's own framing tells a whole body
from a cut one; the path and the headers in the seal; the key's id in the request, so a server tries
the keys it has. A request without a body is not sealed at all.
"""

from collections.abc import Iterable
from typing import Final

from attestation.channel.chunks import (
    DEFAULT_LIMITS,
    MAX_BODY_BYTES,
    MAX_CHUNKS,
    SEND_CHUNK_BYTES,
    ChunkLimits,
    Open,
    Seal,
)
from attestation.channel.encapsulation import Labels, ResponseCipher, ServerKey
from attestation.channel.errors import (
    BodyTooLarge,
    ChannelMisuse,
    DecryptFailed,
    KeyConfigError,
    TooManyChunks,
    UnsupportedSuite,
)
from attestation.channel.hpke import (
    AEAD_AES_256_GCM,
    KDF_HKDF_SHA256,
    KEM_X25519,
    TAG_BYTES,
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
_LENGTH_BYTES: Final = 4


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
        self._sealer = _FrameSealer(self._context.seal)

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
    ) -> "FrameOpener":
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
        self._sealer = _FrameSealer(ResponseCipher(context, self.nonce, _LABELS).seal)

    def seal_chunk(self, data: bytes) -> bytes:
        """Wire bytes of ``data``; no bytes for none.

        Raises: TooManyChunks, BodyTooLarge at the cipher's limits.
        """
        return self._sealer.seal_chunk(data)


class _FrameSealer:
    """Frames and seals one body."""

    __slots__ = ("_num_frames", "_num_sent_bytes", "_seal")

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._num_frames = 0
        self._num_sent_bytes = 0

    def seal_chunk(self, data: bytes) -> bytes:
        starts = range(0, len(data), SEND_CHUNK_BYTES)
        return b"".join(self._seal_one(data[i : i + SEND_CHUNK_BYTES]) for i in starts)

    def _seal_one(self, data: bytes) -> bytes:
        self._num_frames += 1
        self._num_sent_bytes += len(data)
        if self._num_frames > MAX_CHUNKS:
            raise TooManyChunks(f"a body has at most {MAX_CHUNKS} chunks")
        if self._num_sent_bytes > MAX_BODY_BYTES:
            raise BodyTooLarge(f"a body has at most {MAX_BODY_BYTES} bytes")
        sealed = self._seal(b"", data)
        return len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed


class FrameOpener:
    """Splits and opens one body as it arrives, in pieces of any size.

    A frame may be as long as ``limits.max_body_bytes``: published clients send a body as one.
    After the first error every further call raises ChannelMisuse.
    """

    __slots__ = ("_buffer", "_is_open", "_limits", "_num_frames", "_num_received_bytes", "_open")

    def __init__(self, open_frame: Open, limits: ChunkLimits) -> None:
        self._open = open_frame
        self._limits = limits
        self._buffer = bytearray()
        self._is_open = True
        self._num_frames = 0
        self._num_received_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Plaintexts of the frames that ``data`` completes, none of them empty.

        Raises: DecryptFailed, and KeyConfigError of a request; BodyTooLarge or TooManyChunks over
        a limit, before buffering.
        """
        self._require_open()
        self._is_open = False  # stays so when anything below raises
        self._num_received_bytes += len(data)
        if self._num_received_bytes > self._limits.max_body_bytes:
            raise BodyTooLarge(f"body: at most {self._limits.max_body_bytes} bytes")
        self._buffer += data
        opened, start = [], 0
        while (end := self._frame_end(start)) is not None:
            ciphertext = self._buffer[start + _LENGTH_BYTES : end]
            start = end
            if ciphertext:  # an empty frame is no frame, and takes no number
                opened.append(self._open(b"", ciphertext))
        del self._buffer[:start]
        self._is_open = True
        return [plaintext for plaintext in opened if plaintext]

    def finish(self) -> None:
        """The body has ended, as HTTP says.

        Raises: DecryptFailed("truncated") within a frame.
        """
        self._require_open()
        self._is_open = False
        if self._buffer:
            raise DecryptFailed("truncated")

    def _frame_end(self, start: int) -> int | None:
        """Where the frame at ``start`` ends, or None while it has not arrived."""
        if len(self._buffer) < start + _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "big")
        if length > self._limits.max_body_bytes:
            raise BodyTooLarge(f"body: at most {self._limits.max_body_bytes} bytes")
        if 0 < length < TAG_BYTES:
            raise DecryptFailed("decrypt")
        end = start + _LENGTH_BYTES + length
        if end > len(self._buffer):
            return None
        self._num_frames += 1
        if self._num_frames > self._limits.max_chunks:
            raise TooManyChunks(f"body: at most {self._limits.max_chunks} chunks")
        return end

    def _require_open(self) -> None:
        if not self._is_open:
            raise ChannelMisuse("the body has ended or failed already")
