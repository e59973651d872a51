"""Which bytes of an SEV-SNP attestation report mean what?  [AMD 56860 sec. 7.3, table 23]

Every byte has a field; what a version reserves must be zero. Nothing is trusted here. Reports come
as exactly 1184 bytes: what drivers wrap around them is taken off by the named helpers alone.
"""

import struct
from dataclasses import dataclass
from typing import Literal, cast

from attestation.errors import EndorsementMismatch, MalformedEvidence, UnsupportedEvidence

SigningKey = Literal["VCEK", "VLEK"]

REPORT_BYTES = 0x4A0
SIGNED_BYTES = 0x2A0
IOCTL_BUFFER_BYTES = 4000  # SNP_GET_REPORT  [linux/sev-guest.h]
VERSIONS = (2, 3, 4, 5)
CPUID_SINCE = 3
MITIGATIONS_SINCE = 5
ECDSA_P384_SHA384 = 1
POLICY_MUST_BE_ONE = 1 << 17
POLICY_BITS = {
    "smt": 1 << 16,
    "migration": 1 << 18,
    "debug": 1 << 19,
    "single_socket": 1 << 20,
    "cxl": 1 << 21,
    "aes_256_xts": 1 << 22,
    "rapl_off": 1 << 23,
    "ciphertext_hiding": 1 << 24,
    "page_swap_off": 1 << 25,
}
PLATFORM_BITS = {
    "smt": 1 << 0,
    "tsme": 1 << 1,
    "ecc": 1 << 2,
    "rapl_off": 1 << 3,
    "ciphertext_hiding": 1 << 4,
    "alias_check": 1 << 5,
    "tio": 1 << 7,
}

_LAYOUT = (
    ("version", "I"),
    ("guest_svn", "I"),
    ("policy", "Q"),
    ("family_id", "16s"),
    ("image_id", "16s"),
    ("vmpl", "I"),
    ("signature_algo", "I"),
    ("current_tcb", "8s"),
    ("platform_info", "Q"),
    ("flags", "I"),
    ("reserved_04c", "4s"),
    ("report_data", "64s"),
    ("measurement", "48s"),
    ("host_data", "32s"),
    ("id_key_digest", "48s"),
    ("author_key_digest", "48s"),
    ("report_id", "32s"),
    ("report_id_ma", "32s"),
    ("reported_tcb", "8s"),
    ("cpuid", "3s"),
    ("reserved_18b", "21s"),
    ("chip_id", "64s"),
    ("committed_tcb", "8s"),
    ("current_version", "3s"),
    ("reserved_1eb", "1s"),
    ("committed_version", "3s"),
    ("reserved_1ef", "1s"),
    ("launch_tcb", "8s"),
    ("launch_mit_vector", "Q"),
    ("current_mit_vector", "Q"),
    ("reserved_208", "152s"),
    ("signature_r", "48s"),
    ("reserved_2d0", "24s"),
    ("signature_s", "48s"),
    ("reserved_318", "24s"),
    ("reserved_330", "368s"),
)
_STRUCT = struct.Struct("<" + "".join(code for _, code in _LAYOUT))
_RESPONSE = struct.Struct("<II24s")  # status, size, reserved  [AMD 56860 table 26]
_KNOWN_FLAGS = 0b11111
_SIGNING_KEYS: dict[int, SigningKey] = {0: "VCEK", 1: "VLEK"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpReport:
    """The fields of a report that follows its format; ``cpuid`` and mitigations by version.

    A TCB stays 8 bytes here, since its layout depends on the product line. ``cpuid`` is (family,
    model, stepping). ``signature`` is (r, s).
    """

    signed_bytes: bytes
    signature: tuple[int, int]
    version: int
    guest_svn: int
    policy: int
    family_id: bytes
    image_id: bytes
    vmpl: int
    platform_info: int
    is_author_key_used: bool
    is_chip_key_masked: bool
    signing_key: SigningKey
    report_data: bytes
    measurement: bytes
    host_data: bytes
    id_key_digest: bytes
    author_key_digest: bytes
    report_id: bytes
    report_id_ma: bytes
    cpuid: tuple[int, int, int] | None
    chip_id: bytes
    current_tcb: bytes
    reported_tcb: bytes
    committed_tcb: bytes
    launch_tcb: bytes
    current_version: tuple[int, int, int]
    committed_version: tuple[int, int, int]
    launch_mit_vector: int | None
    current_mit_vector: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field for people: where it lies and what it holds, numbers in hex."""

    name: str
    offset: int
    size_bytes: int
    value: str


def parse_report(data: bytes) -> SnpReport:
    """The report in exactly 1184 bytes.

    Raises: MalformedEvidence("format"); UnsupportedEvidence: unsupported_version,
    unsupported_algorithm; EndorsementMismatch("signing_key"): signed by neither VCEK nor VLEK.
    """
    if len(data) != REPORT_BYTES:
        raise MalformedEvidence("format", f"report: {len(data)} bytes, want {REPORT_BYTES}")
    raw = dict(zip((name for name, _ in _LAYOUT), _STRUCT.unpack(data), strict=True))
    version, flags = raw["version"], raw["flags"]
    if version not in VERSIONS:
        raise UnsupportedEvidence("unsupported_version", f"report: version {version}, want 2 to 5")
    if raw["signature_algo"] != ECDSA_P384_SHA384:
        raise UnsupportedEvidence("unsupported_algorithm", "report: not signed by ECDSA on P-384")
    _require_reserved_zero(raw, version)
    signing_key = _SIGNING_KEYS.get(flags >> 2)
    if signing_key is None:
        raise EndorsementMismatch("signing_key", f"report: SIGNING_KEY is {flags >> 2}, want 0, 1")
    has_mitigations = version >= MITIGATIONS_SINCE
    return SnpReport(
        signed_bytes=data[:SIGNED_BYTES],
        signature=(
            int.from_bytes(raw["signature_r"], "little"),
            int.from_bytes(raw["signature_s"], "little"),
        ),
        version=version,
        guest_svn=raw["guest_svn"],
        policy=raw["policy"],
        family_id=raw["family_id"],
        image_id=raw["image_id"],
        vmpl=raw["vmpl"],
        platform_info=raw["platform_info"],
        is_author_key_used=bool(flags & 0b01),
        is_chip_key_masked=bool(flags & 0b10),
        signing_key=signing_key,
        report_data=raw["report_data"],
        measurement=raw["measurement"],
        host_data=raw["host_data"],
        id_key_digest=raw["id_key_digest"],
        author_key_digest=raw["author_key_digest"],
        report_id=raw["report_id"],
        report_id_ma=raw["report_id_ma"],
        cpuid=_triple(raw["cpuid"]) if version >= CPUID_SINCE else None,
        chip_id=raw["chip_id"],
        current_tcb=raw["current_tcb"],
        reported_tcb=raw["reported_tcb"],
        committed_tcb=raw["committed_tcb"],
        launch_tcb=raw["launch_tcb"],
        current_version=_triple(raw["current_version"][::-1]),  # build, minor, major
        committed_version=_triple(raw["committed_version"][::-1]),
        launch_mit_vector=raw["launch_mit_vector"] if has_mitigations else None,
        current_mit_vector=raw["current_mit_vector"] if has_mitigations else None,
    )


def fields(data: bytes) -> tuple[Field, ...]:
    """Every byte of a report, field by field, whether or not it follows its format.

    Raises: MalformedEvidence("format"): not 1184 bytes.
    """
    if len(data) != REPORT_BYTES:
        raise MalformedEvidence("format", f"report: {len(data)} bytes, want {REPORT_BYTES}")
    found: list[Field] = []
    offset = 0
    for (name, code), value in zip(_LAYOUT, _STRUCT.unpack(data), strict=True):
        size_bytes = struct.calcsize("<" + code)
        text = value.hex() if isinstance(value, bytes) else f"{value:#x}{_bit_names(name, value)}"
        found.append(Field(name=name, offset=offset, size_bytes=size_bytes, value=text))
        offset += size_bytes
    return tuple(found)


def report_from_response(data: bytes) -> bytes:
    """The report inside a MSG_REPORT_RSP, alone or in an ioctl buffer of up to 4000 bytes.

    Raises: MalformedEvidence("format"): the firmware reported a failure, or there is more.
    """
    if not _RESPONSE.size + REPORT_BYTES <= len(data) <= IOCTL_BUFFER_BYTES:
        raise MalformedEvidence("format", f"report response: {len(data)} bytes")
    status, size_bytes, reserved = _RESPONSE.unpack_from(data)
    if (status, size_bytes, any(reserved)) != (0, REPORT_BYTES, False):
        raise MalformedEvidence("format", f"report response: status {status}, {size_bytes} bytes")
    return report_from_buffer(data[_RESPONSE.size :])


def report_from_buffer(data: bytes) -> bytes:
    """The report at the start of a buffer of up to 4000 bytes, all zero behind it.

    Raises: MalformedEvidence("format").
    """
    if not REPORT_BYTES <= len(data) <= IOCTL_BUFFER_BYTES or any(data[REPORT_BYTES:]):
        raise MalformedEvidence("format", "report buffer: too short, too long or not only a report")
    return data[:REPORT_BYTES]


def _require_reserved_zero(raw: dict[str, bytes | int], version: int) -> None:
    reserved = [name for name in raw if name.startswith("reserved_")]
    if version < CPUID_SINCE:
        reserved.append("cpuid")
    if version < MITIGATIONS_SINCE:
        reserved += ["launch_mit_vector", "current_mit_vector"]
    for name in reserved:
        value = raw[name]
        if any(value) if isinstance(value, bytes) else value:
            raise MalformedEvidence("format", f"report: {name} is not zero in version {version}")
    if cast("int", raw["flags"]) & ~_KNOWN_FLAGS:
        raise MalformedEvidence("format", "report: a reserved flag is set")


def _triple(raw: bytes) -> tuple[int, int, int]:
    return raw[0], raw[1], raw[2]


def _bit_names(name: str, value: int) -> str:
    bits = {"policy": POLICY_BITS, "platform_info": PLATFORM_BITS}.get(name, {})
    names = [bit_name for bit_name, bit in bits.items() if value & bit]
    return f" ({', '.join(names)})" if names else ""
