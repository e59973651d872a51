"""What does an AWS Nitro attestation document say?  Its payload, field by field.  [AWS NSM API]

Sizes are those of AWS's syntax. PCRs must have the size of the one digest there is, SHA384; the
syntax would also take 32 and 64 bytes, which it never gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from attestation.errors import MalformedEvidence
from attestation.nitro import cbor
from attestation.nitro.cbor import CborValue

DIGEST = "SHA384"
PCR_BYTES = 48
MAX_PCRS = 32
MAX_CABUNDLE = 7  # with the leaf as many as any chain may have
MAX_CERTIFICATE_BYTES = 1024
MAX_PUBLIC_KEY_BYTES = 1024
MAX_USER_DATA_BYTES = 512
MAX_NONCE_BYTES = 512
MAX_MODULE_ID_CHARS = 128
_MAX_TIMESTAMP_MS = 253402300799_000  # the last second of year 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUIRED = frozenset({"module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle"})
_OPTIONAL = frozenset({"public_key", "user_data", "nonce"})
_WHAT = "Nitro document"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationDocument:
    """One parsed document, nothing verified; certificates are DER, ``cabundle`` root first.

    ``public_key``, ``user_data`` and ``nonce`` are what the enclave chose to have signed.
    """

    module_id: str
    made_at: datetime
    pcrs: Mapping[int, bytes]
    certificate: bytes
    cabundle: tuple[bytes, ...]
    public_key: bytes | None
    user_data: bytes | None
    nonce: bytes | None

    def fields(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of what the document says, for people."""
        shown = [
            ("module_id", self.module_id),
            ("digest", DIGEST),
            ("timestamp", self.made_at.isoformat()),
            *((f"pcr{index}", value.hex()) for index, value in sorted(self.pcrs.items())),
            ("certificate", f"{len(self.certificate)} bytes"),
            ("cabundle", f"{len(self.cabundle)} certificates"),
        ]
        for name, value in (
            ("public_key", self.public_key),
            ("user_data", self.user_data),
            ("nonce", self.nonce),
        ):
            shown.append((name, "absent" if value is None else value.hex()))
        return tuple(shown)


def parse_document(payload: bytes) -> AttestationDocument:
    """The document in the payload of a COSE_Sign1.

    Raises: MalformedEvidence: format, trailing_bytes.
    """
    members = cbor.decode(payload, what=_WHAT, are_maps_indefinite=True)
    if not isinstance(members, Mapping):
        raise _malformed("not a map")
    if _REQUIRED - members.keys():
        raise _malformed("a required member is missing")
    if members.keys() - _REQUIRED - _OPTIONAL:
        raise _malformed("an unknown member")
    if members["digest"] != DIGEST:
        raise _malformed(f"its digest is not {DIGEST}")
    return AttestationDocument(
        module_id=_module_id(members["module_id"]),
        made_at=_timestamp(members["timestamp"]),
        pcrs=_pcrs(members["pcrs"]),
        certificate=_bytes(members["certificate"], "certificate", 1, MAX_CERTIFICATE_BYTES),
        cabundle=_cabundle(members["cabundle"]),
        public_key=_optional(members.get("public_key"), "public_key", 1, MAX_PUBLIC_KEY_BYTES),
        user_data=_optional(members.get("user_data"), "user_data", 0, MAX_USER_DATA_BYTES),
        nonce=_optional(members.get("nonce"), "nonce", 0, MAX_NONCE_BYTES),
    )


def _module_id(value: CborValue) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_MODULE_ID_CHARS:
        raise _malformed("its module_id is not a short text")
    if not value.isascii() or not value.isprintable():
        raise _malformed("its module_id is not printable")
    return value


def _timestamp(value: CborValue) -> datetime:
    """Milliseconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MAX_TIMESTAMP_MS:
        raise _malformed("its timestamp is not a time in milliseconds")
    return _EPOCH + timedelta(milliseconds=value)


def _pcrs(value: CborValue) -> Mapping[int, bytes]:
    if not isinstance(value, Mapping) or not 0 < len(value) <= MAX_PCRS:
        raise _malformed(f"its pcrs are not a map of 1..{MAX_PCRS}")
    pcrs: dict[int, bytes] = {}
    for index, pcr in value.items():
        if not isinstance(index, int) or not 0 <= index < MAX_PCRS:
            raise _malformed(f"a PCR outside 0..{MAX_PCRS - 1}")
        pcrs[index] = _bytes(pcr, f"PCR{index}", PCR_BYTES, PCR_BYTES)
    return pcrs


def _cabundle(value: CborValue) -> tuple[bytes, ...]:
    if not isinstance(value, tuple) or not 0 < len(value) <= MAX_CABUNDLE:
        raise _malformed(f"its cabundle is not a list of 1..{MAX_CABUNDLE}")
    return tuple(_bytes(entry, "cabundle", 1, MAX_CERTIFICATE_BYTES) for entry in value)


def _optional(value: CborValue, what: str, minimum: int, maximum: int) -> bytes | None:
    return None if value is None else _bytes(value, what, minimum, maximum)


def _bytes(value: CborValue, what: str, minimum: int, maximum: int) -> bytes:
    if not isinstance(value, bytes) or not minimum <= len(value) <= maximum:
        raise _malformed(f"{what} is not {minimum}..{maximum} bytes")
    return value


def _malformed(problem: str) -> MalformedEvidence:
    return MalformedEvidence("format", f"{_WHAT}: {problem}")
