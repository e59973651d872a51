"""Which platform at which TCB was this PCK certificate issued for?  [Intel SGX PCK profile 1.5]

The extension 1.2.840.113741.1.13.1 is SEQUENCE OF SEQUENCE { OID, value }; the OIDs below are its
members' last arcs.
"""

from dataclasses import dataclass

from cryptography.x509.oid import ObjectIdentifier

from attestation import der
from attestation.errors import MalformedEvidence
from attestation.x509 import Certificate

SGX_EXTENSION = ObjectIdentifier("1.2.840.113741.1.13.1")
SGX_ARC = bytes.fromhex("2a864886f84d010d01")  # DER of the OID above, its members append one arc
PPID = SGX_ARC + b"\x01"
TCB = SGX_ARC + b"\x02"
PCEID = SGX_ARC + b"\x03"
FMSPC = SGX_ARC + b"\x04"
PCESVN = TCB + bytes([17])
NUM_COMPONENTS = 16
FMSPC_BYTES = 6
PCEID_BYTES = 2
PPID_BYTES = 16
_COMPONENTS = tuple(TCB + bytes([arc]) for arc in range(1, NUM_COMPONENTS + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PckExtension:
    """The members that TCB matching and a list of platforms need."""

    ppid: bytes
    fmspc: bytes
    pce_id: bytes
    pce_svn: int
    component_svns: tuple[int, ...]


def parse_pck_extension(certificate: Certificate) -> PckExtension:
    """The SGX extension of a PCK certificate; a member that is absent is an error.

    Raises: MalformedEvidence("format").
    """
    raw = certificate.extension(SGX_EXTENSION)
    if raw is None:
        raise MalformedEvidence("format", "PCK certificate: no SGX extension")
    members = der.pairs(der.read_one(raw, der.SEQUENCE))
    tcb = der.pairs(der.require_tag(_member(members, TCB), der.SEQUENCE))
    return PckExtension(
        ppid=_octets(_member(members, PPID), PPID_BYTES),
        fmspc=_octets(_member(members, FMSPC), FMSPC_BYTES),
        pce_id=_octets(_member(members, PCEID), PCEID_BYTES),
        pce_svn=_svn(tcb, PCESVN, maximum=0xFFFF),
        component_svns=tuple([_svn(tcb, arc, maximum=0xFF) for arc in _COMPONENTS]),
    )


def _member(members: dict[bytes, tuple[int, bytes]], oid: bytes) -> tuple[int, bytes]:
    element = members.get(oid)
    if element is None:
        arc = oid.removeprefix(SGX_ARC).hex()
        raise MalformedEvidence("format", f"PCK certificate: SGX extension lacks .{arc}")
    return element


def _svn(tcb: dict[bytes, tuple[int, bytes]], oid: bytes, *, maximum: int) -> int:
    return der.unsigned(der.require_tag(_member(tcb, oid), der.INTEGER), maximum=maximum)


def _octets(element: tuple[int, bytes], num_bytes: int) -> bytes:
    value = der.require_tag(element, der.OCTET_STRING)
    if len(value) != num_bytes:
        raise MalformedEvidence("format", f"PCK certificate: {len(value)} bytes, want {num_bytes}")
    return value
