"""Which certificates did the host give an SEV-SNP guest?  [GHCB 2.0 sec. 4.1.8.1, table 7]

Entries of GUID, offset and length up to one of zeros, then what they point to. The table comes from
the host: it proves nothing, and one that is broken counts as none.
"""

import struct
import uuid
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.certificate import MAX_CERTIFICATE_BYTES, PARSE_ERRORS
from attestation.errors import MalformedEvidence
from attestation.snp.endorsements import SnpEndorsements

MAX_TABLE_BYTES = 256 * 1024
MAX_ENTRIES = 16
NAMES: Mapping[uuid.UUID, str] = {
    uuid.UUID("63da758d-e664-4564-adc5-f4b93be8accd"): "VCEK",
    uuid.UUID("a8074bc2-a25a-483e-aae6-39c045a0b8a1"): "VLEK",
    uuid.UUID("4ab7b379-bbac-4fe4-a02f-05aef327c782"): "ASK",
    uuid.UUID("c0b406a4-a803-4952-9743-3fb6014cd0ae"): "ARK",
}
_ENTRY = struct.Struct("<16sII")
_PEM_START = b"-----BEGIN CERTIFICATE-----"


def parse_cert_table(data: bytes) -> dict[str, bytes]:
    """Certificates by name as the host wrote them, DER or PEM; entries of other kinds are left out.

    Raises: MalformedEvidence("format").
    """
    if len(data) > MAX_TABLE_BYTES:
        raise MalformedEvidence("format", f"certificate table: {len(data)} bytes")
    found: dict[str, bytes] = {}
    for index in range(MAX_ENTRIES + 1):
        if (index + 1) * _ENTRY.size > len(data):
            raise MalformedEvidence("format", "certificate table: no end")
        guid, offset, length = _ENTRY.unpack_from(data, index * _ENTRY.size)
        if not any(guid):
            return found
        if offset + length > len(data) or length > MAX_CERTIFICATE_BYTES:
            raise MalformedEvidence("format", "certificate table: an entry points beyond its end")
        name = NAMES.get(uuid.UUID(bytes=guid))
        if name in found:
            raise MalformedEvidence("format", f"certificate table: {name} occurs twice")
        if name is not None and length:
            found[name] = data[offset : offset + length]
    raise MalformedEvidence("format", f"certificate table: more than {MAX_ENTRIES} entries")


def table_endorsements(data: bytes) -> SnpEndorsements | None:
    """What a verifier may use of a table: the VLEK or VCEK, and its chain when it is all there.

    Raises: MalformedEvidence("format").
    """
    if not data:
        return None
    found = parse_cert_table(data)
    vek = found.get("VLEK") or found.get("VCEK")
    if vek is None:
        return None
    chain = b""
    if "VLEK" not in found and "ASK" in found and "ARK" in found:  # the ASK signs no VLEK
        chain = _pem(found["ASK"]) + _pem(found["ARK"])
    return SnpEndorsements(vek=vek, chain=chain, crl=None)


def _pem(certificate: bytes) -> bytes:
    if certificate.startswith(_PEM_START):
        return certificate.rstrip(b"\0\n") + b"\n"
    try:
        return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", "certificate table: an entry is no certificate") from err
