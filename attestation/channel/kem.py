"""Key encapsulation: which secret do sender and recipient share?

X25519 [RFC 9180 sec. 4.1, 0x0020] and X-Wing, ML-KEM-768 with X25519
[draft-connolly-cfrg-xwing-kem, draft-ietf-hpke-pq, 0x647a].
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, Self

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from attestation.channel.errors import (
    ChannelMisuse,
    DecryptFailed,
    KeyConfigError,
    UnsupportedSuite,
)
from attestation.channel.hkdf import labeled_expand, labeled_extract

KEM_X25519 = 0x0020
KEM_XWING = 0x647A

Rng = Callable[[int], bytes]
"""Returns that many fresh random bytes; ``os.urandom`` outside tests."""

_X25519_BYTES = 32
_X25519_SUITE = b"KEM" + KEM_X25519.to_bytes(2, "big")
_MLKEM768_PUBLIC_BYTES = 1184
_MLKEM768_CIPHERTEXT_BYTES = 1088
_MLKEM768_SEED_BYTES = 64
_XWING_LABEL = b"\\.//^\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class KemSizes:
    """Npk, Nenc and Nsk of a KEM."""

    public_key_bytes: int
    enc_bytes: int
    private_key_bytes: int


KEM_SIZES: Mapping[int, KemSizes] = MappingProxyType(
    {
        KEM_X25519: KemSizes(public_key_bytes=32, enc_bytes=32, private_key_bytes=32),
        KEM_XWING: KemSizes(public_key_bytes=1216, enc_bytes=1120, private_key_bytes=32),
    }
)


def kem_sizes(kem_id: int) -> KemSizes:
    """Sizes of a KEM.

    Raises: UnsupportedSuite for a KEM that is not implemented.
    """
    try:
        return KEM_SIZES[kem_id]
    except KeyError:
        raise UnsupportedSuite(f"KEM {kem_id:#06x} is not supported") from None


class PrivateKey:
    """A recipient's key; lives in memory only and never shows its secret.

    ``kem_id`` and ``public_key`` (serialized, Npk bytes) are public.
    """

    __slots__ = ("_secret", "kem_id", "public_key")

    def __init__(self, secret: "_Secret") -> None:
        self._secret = secret
        self.kem_id: int = secret.kem_id
        self.public_key: bytes = secret.public_key

    @classmethod
    def generate(cls, kem_id: int = KEM_X25519, *, rng: Rng = os.urandom) -> Self:
        """A fresh key from the operating system's randomness, or ``rng``'s.

        Raises: UnsupportedSuite for a KEM that is not implemented.
        """
        return cls.from_bytes(rng(kem_sizes(kem_id).private_key_bytes), kem_id)

    @classmethod
    def from_bytes(cls, data: bytes, kem_id: int = KEM_X25519) -> Self:
        """The key with this serialized secret: an X25519 scalar or an X-Wing seed, 32 bytes.

        Raises: UnsupportedSuite; KeyConfigError for another length.
        """
        expected = kem_sizes(kem_id).private_key_bytes
        if len(data) != expected:
            raise KeyConfigError(f"private key: want {expected} bytes, got {len(data)}")
        return cls(_X25519Secret(data) if kem_id == KEM_X25519 else _XWingSecret(data))

    def decapsulate(self, enc: bytes) -> bytes:
        """The 32-byte shared secret behind ``enc`` (Nenc bytes).

        Raises: DecryptFailed when ``enc`` is no valid encapsulation.
        """
        if len(enc) != KEM_SIZES[self.kem_id].enc_bytes:
            raise DecryptFailed("malformed")
        try:
            return self._secret.decapsulate(enc)
        except ValueError as err:
            raise DecryptFailed("decrypt") from err

    def exchange(self, public_key: bytes) -> bytes:
        """Bare X25519 with another public key; ephemeral keys only.

        Raises: ChannelMisuse for a key of another KEM; ValueError for a low-order point.
        """
        if not isinstance(self._secret, _X25519Secret):
            raise ChannelMisuse("an ephemeral key is an X25519 key")
        return self._secret.exchange(public_key)

    def __repr__(self) -> str:
        return f"PrivateKey(kem_id={self.kem_id:#06x}, secret=<redacted>)"


def encapsulate(
    kem_id: int, public_key: bytes, *, ephemeral: PrivateKey | None = None
) -> tuple[bytes, bytes]:
    """(shared secret, enc) to a public key.

    ``ephemeral`` fixes the X25519 part; ML-KEM always draws from the operating system.

    Raises: UnsupportedSuite; KeyConfigError when ``public_key`` is no valid key of the KEM.
    """
    expected = kem_sizes(kem_id).public_key_bytes
    if len(public_key) != expected:
        raise KeyConfigError(f"public key: want {expected} bytes, got {len(public_key)}")
    fresh = ephemeral if ephemeral is not None else PrivateKey.generate()
    try:
        if kem_id == KEM_X25519:
            return _encapsulate_x25519(public_key, fresh)
        return _encapsulate_xwing(public_key, fresh)
    except ValueError as err:
        raise KeyConfigError("the public key is not valid for its KEM") from err


class _Secret(Protocol):
    kem_id: int
    public_key: bytes

    def decapsulate(self, enc: bytes) -> bytes: ...


class _X25519Secret:
    __slots__ = ("_key", "kem_id", "public_key")

    def __init__(self, data: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(data)
        self.kem_id = KEM_X25519
        self.public_key = self._key.public_key().public_bytes_raw()

    def exchange(self, public_key: bytes) -> bytes:
        return self._key.exchange(X25519PublicKey.from_public_bytes(public_key))

    def decapsulate(self, enc: bytes) -> bytes:
        return _dhkem_secret(self.exchange(enc), enc + self.public_key)


class _XWingSecret:
    __slots__ = ("_mlkem", "_x25519", "kem_id", "public_key")

    def __init__(self, seed: bytes) -> None:
        expanded = hashlib.shake_256(seed).digest(_MLKEM768_SEED_BYTES + _X25519_BYTES)
        self._mlkem = MLKEM768PrivateKey.from_seed_bytes(expanded[:_MLKEM768_SEED_BYTES])
        self._x25519 = _X25519Secret(expanded[_MLKEM768_SEED_BYTES:])
        self.kem_id = KEM_XWING
        self.public_key = self._mlkem.public_key().public_bytes_raw() + self._x25519.public_key

    def decapsulate(self, enc: bytes) -> bytes:
        mlkem_ct, x25519_ct = enc[:_MLKEM768_CIPHERTEXT_BYTES], enc[_MLKEM768_CIPHERTEXT_BYTES:]
        return _xwing_secret(
            self._mlkem.decapsulate(mlkem_ct),
            self._x25519.exchange(x25519_ct),
            x25519_ct,
            self._x25519.public_key,
        )


def _encapsulate_x25519(public_key: bytes, ephemeral: PrivateKey) -> tuple[bytes, bytes]:
    enc = ephemeral.public_key
    return _dhkem_secret(ephemeral.exchange(public_key), enc + public_key), enc


def _encapsulate_xwing(public_key: bytes, ephemeral: PrivateKey) -> tuple[bytes, bytes]:
    mlkem_key, x25519_key = public_key[:_MLKEM768_PUBLIC_BYTES], public_key[_MLKEM768_PUBLIC_BYTES:]
    mlkem_secret, mlkem_ct = MLKEM768PublicKey.from_public_bytes(mlkem_key).encapsulate()
    x25519_ct = ephemeral.public_key
    x25519_secret = ephemeral.exchange(x25519_key)
    shared = _xwing_secret(mlkem_secret, x25519_secret, x25519_ct, x25519_key)
    return shared, mlkem_ct + x25519_ct


def _dhkem_secret(dh: bytes, kem_context: bytes) -> bytes:
    eae_prk = labeled_extract(_X25519_SUITE, b"", b"eae_prk", dh)
    return labeled_expand(_X25519_SUITE, eae_prk, b"shared_secret", kem_context, 32)


def _xwing_secret(mlkem_secret: bytes, x25519_secret: bytes, ct: bytes, key: bytes) -> bytes:
    return hashlib.sha3_256(mlkem_secret + x25519_secret + ct + key + _XWING_LABEL).digest()
