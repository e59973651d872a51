"""What do plain and chunked OHTTP share?  Header, key lookup, response keys.  [RFC 9458 sec. 4]"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidTag

from attestation.channel.errors import DecryptFailed, KeyConfigError, UnsupportedSuite
from attestation.channel.hkdf import expand, extract
from attestation.channel.hpke import (
    KEM_SIZES,
    KEM_X25519,
    NONCE_BYTES,
    Aead,
    PrivateKey,
    RecipientContext,
    Rng,
    SenderContext,
    Suite,
    new_aead,
    setup_recipient,
    setup_sender,
)
from attestation.channel.keyconfig import DEFAULT_SYMMETRIC, KeyConfig, SymmetricSuite

HEADER_BYTES = 7
_EPHEMERAL_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The strings that keep plain and chunked messages apart."""

    request: bytes
    response: bytes


PLAIN = Labels(request=b"message/bhttp request", response=b"message/bhttp response")
CHUNKED = Labels(
    request=b"message/bhttp chunked request", response=b"message/bhttp chunked response"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKey:
    """A key configuration with its private key.

    Raises: KeyConfigError when the two do not belong together.
    """

    config: KeyConfig
    private_key: PrivateKey

    def __post_init__(self) -> None:
        same_key = hmac.compare_digest(self.config.public_key, self.private_key.public_key)
        if self.config.kem_id != self.private_key.kem_id or not same_key:
            raise KeyConfigError("private key and key configuration do not belong together")

    @classmethod
    def from_private_key(
        cls,
        key_id: int,
        private_key: PrivateKey,
        symmetric: tuple[SymmetricSuite, ...] = DEFAULT_SYMMETRIC,
    ) -> Self:
        """The configuration that offers ``private_key`` under ``key_id``."""
        config = KeyConfig(
            key_id=key_id,
            kem_id=private_key.kem_id,
            public_key=private_key.public_key,
            symmetric=symmetric,
        )
        return cls(config=config, private_key=private_key)

    @classmethod
    def generate(cls, key_id: int, *, kem_id: int = KEM_X25519) -> Self:
        """A fresh key from the operating system's randomness, with the default suites."""
        return cls.from_private_key(key_id, PrivateKey.generate(kem_id))


ServerKeys = Mapping[int, ServerKey]
"""The keys a server opens with, by key id: Pending, Active and Stale, each for one period."""


def encapsulated_header(key_id: int, suite: Suite) -> bytes:
    """key_id, kem_id, kdf_id, aead_id: 7 bytes."""
    ids = (suite.kem_id, suite.kdf_id, suite.aead_id)
    return key_id.to_bytes(1, "big") + b"".join(part.to_bytes(2, "big") for part in ids)


def setup_client(
    config: KeyConfig, suite: Suite | None, labels: Labels, rng: Rng
) -> tuple[bytes, SenderContext]:
    """(header and enc, context) of a new request; ``suite`` None takes the preferred one.

    Raises: UnsupportedSuite when the key does not offer ``suite``; KeyConfigError for a bad key.
    """
    chosen = suite if suite is not None else config.preferred_suite()
    if not config.offers(chosen):
        raise UnsupportedSuite(f"key {config.key_id} does not offer the suite asked for")
    header = encapsulated_header(config.key_id, chosen)
    ephemeral = PrivateKey.from_bytes(rng(_EPHEMERAL_BYTES))
    info = labels.request + b"\x00" + header
    context = setup_sender(config.public_key, info, chosen, ephemeral=ephemeral)
    return header + context.enc, context


def find_server_key(keys: ServerKeys, header: bytes) -> tuple[ServerKey, Suite]:
    """The key and suite that a 7-byte header names.

    Raises: KeyConfigError for an unknown key id, another KEM, or a suite that is not offered.
    """
    key = keys.get(header[0])
    kem_id, kdf_id, aead_id = (int.from_bytes(header[i : i + 2], "big") for i in (1, 3, 5))
    suite = Suite(kem_id, kdf_id, aead_id)
    if key is None or not key.config.offers(suite) or not suite.is_supported:
        raise KeyConfigError(f"no key {header[0]} with KEM, KDF and AEAD as in the request")
    return key, suite


def setup_server(
    key: ServerKey, suite: Suite, header: bytes, enc: bytes, labels: Labels
) -> RecipientContext:
    """The context of a received request.

    Raises: DecryptFailed for an ``enc`` that is no valid encapsulation.
    """
    return setup_recipient(enc, key.private_key, labels.request + b"\x00" + header, suite)


def request_preamble_bytes(suite: Suite) -> int:
    """How long header and enc are."""
    return HEADER_BYTES + KEM_SIZES[suite.kem_id].enc_bytes


def response_nonce_bytes(suite: Suite) -> int:
    """max(Nn, Nk): how long the response nonce and the exported secret are."""
    return max(NONCE_BYTES, suite.key_bytes)


def response_keys(
    secret: bytes, enc: bytes, response_nonce: bytes, key_bytes: int
) -> tuple[bytes, bytes]:
    """(key, iv) of a response, from the secret that its request's context exported."""
    prk = extract(enc + response_nonce, secret)
    return expand(prk, b"key", key_bytes), expand(prk, b"nonce", NONCE_BYTES)


class ResponseCipher:
    """Seals or opens response chunks in sequence: nonce i is iv XOR i."""

    __slots__ = ("_aead", "_counter", "_iv")

    def __init__(
        self, context: SenderContext | RecipientContext, response_nonce: bytes, labels: Labels
    ) -> None:
        suite = context.suite
        secret = context.export(labels.response, response_nonce_bytes(suite))
        key, iv = response_keys(secret, context.enc, response_nonce, suite.key_bytes)
        self._aead: Aead = new_aead(suite.aead_id, key)
        self._iv = int.from_bytes(iv, "big")
        self._counter = 0

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        """Ciphertext and tag of the next chunk."""
        nonce = (self._iv ^ self._counter).to_bytes(NONCE_BYTES, "big")
        self._counter += 1
        return self._aead.encrypt(nonce, plaintext, aad)

    def open(self, aad: bytes, ciphertext: bytes | bytearray) -> bytes:
        """Plaintext of the next chunk.

        Raises: DecryptFailed.
        """
        nonce = (self._iv ^ self._counter).to_bytes(NONCE_BYTES, "big")
        try:
            plaintext = self._aead.decrypt(nonce, ciphertext, aad)
        except InvalidTag as err:
            raise DecryptFailed("decrypt") from err
        self._counter += 1
        return plaintext
