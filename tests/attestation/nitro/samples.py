"""Nitro documents of our own: AWS's shape under a root whose key anybody can compute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support import p384

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
NONCE = bytes(range(32))
PUBLIC_KEY = b"public key of the enclave"
USER_DATA = b"user data of the enclave"
ROOT = "nitro test root"
REGIONAL, ZONAL, INSTANCE = "nitro test regional", "nitro test zonal", "nitro test instance"
LEAF = "i-0-enc0.test.aws"
PCRS = {index: bytes([index + 1] * 48) if index < 3 else bytes(48) for index in range(16)}
POLICY: dict[str, Any] = {
    "debug": "refused",
    "max_age_s": 300,
    "measurements": {
        "mode": "required",
        **{f"pcr{index}": [PCRS[index].hex()] for index in range(3)},
    },
}
_PROTECTED = {1: -35}


class Raw(bytes):
    """CBOR that is encoded already, right or wrong."""


class Indefinite(dict[Any, Any]):
    """A map of indefinite length, as AWS writes the outer one."""


class Tagged:
    """A value under a tag."""

    def __init__(self, tag: int, value: Any) -> None:
        self.tag, self.value = tag, value


@dataclass
class Document:
    """One document before it is signed; ``payload`` overrides its members."""

    members: dict[str, Any]
    protected: Any = field(default_factory=lambda: Raw(cbor(_PROTECTED)))
    unprotected: Any = field(default_factory=dict)
    signer: str = LEAF
    payload: bytes | None = None
    is_map_definite: bool = False
    edit: Callable[[bytes], bytes] = lambda data: data
    sign: Callable[[str, bytes], bytes] = p384.sign

    def to_bytes(self) -> bytes:
        """The signed document."""
        members = self.members if self.is_map_definite else Indefinite(self.members)
        payload = cbor(members) if self.payload is None else self.payload
        protected = bytes(self.protected)
        signed = cbor(["Signature1", protected, b"", payload])
        return self.edit(
            cbor([protected, self.unprotected, payload, self.sign(self.signer, signed)])
        )


def chain() -> list[x509.Certificate]:
    """Leaf, instance, zonal, regional, root."""
    return [
        leaf(),
        p384.certificate(INSTANCE, ZONAL, path_length=0),
        p384.certificate(ZONAL, REGIONAL, path_length=1),
        p384.certificate(REGIONAL, ROOT, path_length=2),
        root(),
    ]


def root() -> x509.Certificate:
    """The root that the tests pin."""
    return p384.certificate(ROOT, ROOT, path_length=None, is_ca=True)


def leaf(**changes: Any) -> x509.Certificate:
    """A document signer of three hours."""
    usual: dict[str, Any] = {
        "not_before": AT - timedelta(minutes=5),
        "not_after": AT + timedelta(hours=3),
    }
    return p384.certificate(LEAF, INSTANCE, **{**usual, **changes})


def good_document() -> Document:
    """Accepted at AT under POLICY, for NONCE, PUBLIC_KEY and USER_DATA."""
    return Document(
        members={
            "module_id": "i-0-enc0",
            "digest": "SHA384",
            "timestamp": int(AT.timestamp() * 1000) - 1500,
            "pcrs": dict(PCRS),
            **certificates(chain()),
            "public_key": PUBLIC_KEY,
            "user_data": USER_DATA,
            "nonce": NONCE,
        }
    )


def certificates(leaf_first: Sequence[x509.Certificate]) -> dict[str, Any]:
    """The members that hold a chain."""
    ders = [certificate.public_bytes(Encoding.DER) for certificate in leaf_first]
    return {"certificate": ders[0], "cabundle": ders[:0:-1]}


def with_chain(change: Callable[[list[x509.Certificate]], object]) -> Document:
    """The good document under a changed chain."""
    leaf_first = chain()
    change(leaf_first)
    return with_members(**certificates(leaf_first))


def with_members(drop: tuple[str, ...] = (), **members: Any) -> Document:
    """The good document with members set or dropped."""
    document = good_document()
    document.members.update(members)
    for name in drop:
        del document.members[name]
    return document


def with_parts(**parts: Any) -> Document:
    """The good document with other parts around the payload."""
    document = good_document()
    for name, value in parts.items():
        setattr(document, name, value)
    return document


def cbor(value: Any) -> bytes:
    """CBOR of a value, written independently of the reader under test."""
    if isinstance(value, Raw):
        return bytes(value)
    if value is None or isinstance(value, bool):
        return {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    if isinstance(value, Tagged):
        return head(6, value.tag) + cbor(value.value)
    assert isinstance(value, Mapping)
    pairs = b"".join(cbor(key) + cbor(item) for key, item in value.items())
    return (
        b"\xbf" + pairs + b"\xff" if isinstance(value, Indefinite) else head(5, len(value)) + pairs
    )


def head(major: int, argument: int) -> bytes:
    """Initial byte and shortest argument."""
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in (1, 2, 4, 8) if argument < 1 << 8 * size)
    return bytes([major << 5 | 23 + size.bit_length()]) + argument.to_bytes(size, "big")
