"""HPKE base mode: how is a message sealed to a public key, and only to it?  [RFC 9180]"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from attestation.channel.errors import DecryptFailed, TooManyChunks, UnsupportedSuite
from attestation.channel.hkdf import HASH_BYTES, labeled_expand, labeled_extract
from attestation.channel.kem import (
    KEM_SIZES,
    KEM_X25519,
    KEM_XWING,
    KemSizes,
    PrivateKey,
    Rng,
    encapsulate,
    kem_sizes,
)

__all__ = [
    "AEAD_AES_128_GCM",
    "AEAD_AES_256_GCM",
    "AEAD_CHACHA20_POLY1305",
    "KDF_HKDF_SHA256",
    "KEM_SIZES",
    "KEM_X25519",
    "KEM_XWING",
    "NONCE_BYTES",
    "TAG_BYTES",
    "Aead",
    "KemSizes",
    "PrivateKey",
    "RecipientContext",
    "Rng",
    "SenderContext",
    "Suite",
    "kem_sizes",
    "new_aead",
    "setup_recipient",
    "setup_sender",
]

KDF_HKDF_SHA256 = 0x0001
AEAD_AES_128_GCM = 0x0001
AEAD_AES_256_GCM = 0x0002
AEAD_CHACHA20_POLY1305 = 0x0003

NONCE_BYTES = 12  # Nn of all three AEADs
TAG_BYTES = 16  # Nt of all three AEADs
MAX_SEALS = 1 << 32  # messages per context; far under RFC 9180's 2^96, near AES-GCM's own bound

_AEAD_KEY_BYTES = {AEAD_AES_128_GCM: 16, AEAD_AES_256_GCM: 32, AEAD_CHACHA20_POLY1305: 32}
_MODE_BASE = b"\x00"


class Aead(Protocol):
    """The part of an AEAD the channel uses; nonces are 12 bytes, tags 16."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(
        self, nonce: bytes, data: bytes | bytearray, associated_data: bytes | None
    ) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Suite:
    """KEM, KDF and AEAD by their registered ids; any ids, supported or not."""

    kem_id: int
    kdf_id: int = KDF_HKDF_SHA256
    aead_id: int = AEAD_AES_128_GCM

    @property
    def is_supported(self) -> bool:
        """Whether this implementation can set up a context with it."""
        return (
            self.kem_id in KEM_SIZES
            and self.kdf_id == KDF_HKDF_SHA256
            and self.aead_id in _AEAD_KEY_BYTES
        )

    def require_supported(self) -> None:
        """Raises: UnsupportedSuite, with the ids."""
        if not self.is_supported:
            ids = f"KEM {self.kem_id:#06x}, KDF {self.kdf_id:#06x}, AEAD {self.aead_id:#06x}"
            raise UnsupportedSuite(f"HPKE suite is not supported: {ids}")

    @property
    def key_bytes(self) -> int:
        """Nk of the AEAD; KeyError when the suite is not supported."""
        return _AEAD_KEY_BYTES[self.aead_id]


def new_aead(aead_id: int, key: bytes) -> Aead:
    """An AEAD under ``key`` (Nk bytes).

    Raises: UnsupportedSuite for another AEAD, the export-only one included.
    """
    if aead_id in (AEAD_AES_128_GCM, AEAD_AES_256_GCM):
        return AESGCM(key)
    if aead_id == AEAD_CHACHA20_POLY1305:
        return ChaCha20Poly1305(key)
    raise UnsupportedSuite(f"AEAD {aead_id:#06x} is not supported")


class _Context:
    __slots__ = (
        "_aead",
        "_base_nonce",
        "_exporter_secret",
        "_sequence",
        "_suite_id",
        "enc",
        "suite",
    )

    def __init__(self, suite: Suite, enc: bytes, shared_secret: bytes, info: bytes) -> None:
        self.suite = suite
        self.enc = enc
        self._suite_id, psk_id_hash = _suite_constants(suite)
        info_hash = labeled_extract(self._suite_id, b"", b"info_hash", info)
        context = _MODE_BASE + psk_id_hash + info_hash
        secret = labeled_extract(self._suite_id, shared_secret, b"secret", b"")
        key = labeled_expand(self._suite_id, secret, b"key", context, suite.key_bytes)
        nonce = labeled_expand(self._suite_id, secret, b"base_nonce", context, NONCE_BYTES)
        self._exporter_secret = labeled_expand(self._suite_id, secret, b"exp", context, HASH_BYTES)
        self._aead = new_aead(suite.aead_id, key)
        self._base_nonce = int.from_bytes(nonce, "big")
        self._sequence = 0

    def export(self, exporter_context: bytes, length_bytes: int) -> bytes:
        """A secret of both sides for another use; ValueError over 8160 bytes."""
        return labeled_expand(
            self._suite_id, self._exporter_secret, b"sec", exporter_context, length_bytes
        )

    def _nonce(self) -> bytes:
        if self._sequence >= MAX_SEALS:
            raise TooManyChunks(f"a context seals at most {MAX_SEALS} messages")
        return (self._base_nonce ^ self._sequence).to_bytes(NONCE_BYTES, "big")


class SenderContext(_Context):
    """Seals a sequence of messages; ``enc`` goes to the recipient first."""

    __slots__ = ()

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        """Ciphertext and tag of the next message in sequence."""
        sealed = self._aead.encrypt(self._nonce(), plaintext, aad)
        self._sequence += 1
        return sealed


class RecipientContext(_Context):
    """Opens a sequence of messages in the order of their sealing."""

    __slots__ = ()

    def open(self, aad: bytes, ciphertext: bytes | bytearray) -> bytes:
        """Plaintext of the next message; the sequence stays where it was on failure.

        Raises: DecryptFailed.
        """
        try:
            plaintext = self._aead.decrypt(self._nonce(), ciphertext, aad)
        except InvalidTag as err:
            raise DecryptFailed("decrypt") from err
        self._sequence += 1
        return plaintext


def setup_sender(
    public_key: bytes, info: bytes, suite: Suite, *, ephemeral: PrivateKey | None = None
) -> SenderContext:
    """A context to the holder of ``public_key``; ``ephemeral`` (X25519) is fresh when absent.

    Raises: UnsupportedSuite; KeyConfigError when the public key is not valid.
    """
    suite.require_supported()
    shared_secret, enc = encapsulate(suite.kem_id, public_key, ephemeral=ephemeral)
    return SenderContext(suite, enc, shared_secret, info)


def setup_recipient(
    enc: bytes, private_key: PrivateKey, info: bytes, suite: Suite
) -> RecipientContext:
    """The context a sender set up with ``enc``.

    Raises: UnsupportedSuite, also when the key is of another KEM; DecryptFailed for a bad ``enc``.
    """
    suite.require_supported()
    if private_key.kem_id != suite.kem_id:
        raise UnsupportedSuite(f"key of KEM {private_key.kem_id:#06x}, suite {suite.kem_id:#06x}")
    return RecipientContext(suite, enc, private_key.decapsulate(enc), info)


@lru_cache(maxsize=len(KEM_SIZES) * len(_AEAD_KEY_BYTES))
def _suite_constants(suite: Suite) -> tuple[bytes, bytes]:
    """(suite_id, psk_id_hash of the empty psk_id): the same in every base-mode context."""
    ids = (suite.kem_id, suite.kdf_id, suite.aead_id)
    suite_id = b"HPKE" + b"".join(part.to_bytes(2, "big") for part in ids)
    return suite_id, labeled_extract(suite_id, b"", b"psk_id_hash", b"")
