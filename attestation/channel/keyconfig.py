"""Key configurations: which key and suites does a recipient offer?  [RFC 9458 sec. 3]"""

import hashlib
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from attestation.channel.errors import KeyConfigError, UnsupportedSuite
from attestation.channel.hpke import KDF_HKDF_SHA256, KEM_SIZES, Suite

MAX_KEY_CONFIGS = 255  # a key id is one byte
MAX_KEY_LIST_BYTES = 1 << 19  # 255 X-Wing configurations with room to spare

_ID_AND_KEM_BYTES = 3
_ALGORITHM_BYTES = 4


class SymmetricSuite(NamedTuple):
    """A KDF and AEAD pair, by id."""

    kdf_id: int
    aead_id: int


DEFAULT_SYMMETRIC = tuple(SymmetricSuite(KDF_HKDF_SHA256, aead_id) for aead_id in (1, 2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """One public key with its id and the symmetric suites it may be used with."""

    key_id: int
    kem_id: int
    public_key: bytes
    symmetric: tuple[SymmetricSuite, ...] = DEFAULT_SYMMETRIC

    def __post_init__(self) -> None:
        if not 0 <= self.key_id <= 0xFF:
            raise KeyConfigError(f"key id: want 0..255, got {self.key_id}")
        if self.kem_id not in KEM_SIZES:
            raise UnsupportedSuite(f"KEM {self.kem_id:#06x} is not supported")
        expected = KEM_SIZES[self.kem_id].public_key_bytes
        if len(self.public_key) != expected:
            raise KeyConfigError(f"public key: want {expected} bytes, got {len(self.public_key)}")
        if not 1 <= len(self.symmetric) <= 0xFFFF // _ALGORITHM_BYTES:
            raise KeyConfigError("a key configuration offers at least one symmetric suite")
        if not all(0 <= value <= 0xFFFF for pair in self.symmetric for value in pair):
            raise KeyConfigError("a KDF or AEAD id has two bytes")

    def serialize(self) -> bytes:
        """The bare form, without a length before it."""
        algorithms = b"".join(
            kdf_id.to_bytes(2, "big") + aead_id.to_bytes(2, "big")
            for kdf_id, aead_id in self.symmetric
        )
        head = self.key_id.to_bytes(1, "big") + self.kem_id.to_bytes(2, "big")
        return head + self.public_key + len(algorithms).to_bytes(2, "big") + algorithms

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the bare form: the ``config_sha256`` that a keyset attests."""
        return hashlib.sha256(self.serialize()).hexdigest()

    def offers(self, suite: Suite) -> bool:
        """Whether this key may be used with ``suite``."""
        return self.kem_id == suite.kem_id and (suite.kdf_id, suite.aead_id) in self.symmetric

    def preferred_suite(self) -> Suite:
        """The first offered suite that is implemented here.

        Raises: UnsupportedSuite when there is none.
        """
        for kdf_id, aead_id in self.symmetric:
            suite = Suite(self.kem_id, kdf_id, aead_id)
            if suite.is_supported:
                return suite
        raise UnsupportedSuite(f"key {self.key_id} offers no supported symmetric suite")


def parse_key_config(data: bytes) -> KeyConfig:
    """The bare form, to its last byte.

    Raises: UnsupportedSuite for an unknown KEM; KeyConfigError for anything else that is wrong.
    """
    if len(data) < _ID_AND_KEM_BYTES:
        raise KeyConfigError("key configuration: cut short in its header")
    kem_id = int.from_bytes(data[1:3], "big")
    if kem_id not in KEM_SIZES:
        raise UnsupportedSuite(f"KEM {kem_id:#06x} is not supported")
    key_end = _ID_AND_KEM_BYTES + KEM_SIZES[kem_id].public_key_bytes
    algorithms = data[key_end + 2 :]
    if len(data) < key_end + 2 or len(algorithms) != int.from_bytes(
        data[key_end : key_end + 2], "big"
    ):
        raise KeyConfigError("key configuration: its length and its fields disagree")
    if not algorithms or len(algorithms) % _ALGORITHM_BYTES:
        raise KeyConfigError("key configuration: symmetric suites are one or more of 4 bytes")
    return KeyConfig(
        key_id=data[0],
        kem_id=kem_id,
        public_key=data[_ID_AND_KEM_BYTES:key_end],
        symmetric=tuple(
            SymmetricSuite(
                int.from_bytes(algorithms[i : i + 2], "big"),
                int.from_bytes(algorithms[i + 2 : i + 4], "big"),
            )
            for i in range(0, len(algorithms), _ALGORITHM_BYTES)
        ),
    )


def parse_key_configs(data: bytes) -> tuple[KeyConfig, ...]:
    """An application/ohttp-keys list; configurations of an unknown KEM are skipped.

    Raises: KeyConfigError for a malformed, oversized or empty list, or one without a known KEM.
    """
    if len(data) > MAX_KEY_LIST_BYTES:
        raise KeyConfigError(f"key list: at most {MAX_KEY_LIST_BYTES} bytes")
    configs: list[KeyConfig] = []
    num_seen, start = 0, 0
    while start < len(data):
        end = start + 2 + int.from_bytes(data[start : start + 2], "big")
        num_seen += 1
        if len(data) - start < 2 or end > len(data) or num_seen > MAX_KEY_CONFIGS:
            raise KeyConfigError("key list: a length is wrong or there are too many entries")
        entry = data[start + 2 : end]
        if len(entry) < _ID_AND_KEM_BYTES or int.from_bytes(entry[1:3], "big") in KEM_SIZES:
            configs.append(parse_key_config(entry))
        start = end
    if not configs:
        raise KeyConfigError("key list: no key of a supported KEM")
    return tuple(configs)


def serialize_key_configs(configs: Iterable[KeyConfig]) -> bytes:
    """The application/ohttp-keys list of these configurations."""
    entries = [config.serialize() for config in configs]
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def attested_key_configs(
    configs: Iterable[KeyConfig], attested_sha256: Collection[str]
) -> tuple[KeyConfig, ...]:
    """The configurations whose SHA-256 (hex) the attested keyset lists, in their order.

    Raises: KeyConfigError when none is attested.
    """
    found = tuple(
        config
        for config in configs
        if any(hmac.compare_digest(config.sha256, attested) for attested in attested_sha256)
    )
    if not found:
        raise KeyConfigError("no offered key configuration is in the attested keyset")
    return found


def select_key_config(configs: Iterable[KeyConfig], attested_sha256: Collection[str]) -> KeyConfig:
    """The first configuration whose SHA-256 (hex) the attested keyset lists.

    Raises: KeyConfigError when none is attested.
    """
    return attested_key_configs(configs, attested_sha256)[0]
