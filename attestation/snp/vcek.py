"""Which chip at which TCB was this VCEK issued for, or which provider's VLEK is it?  [AMD 57230]

AMD's extensions 1.3.6.1.4.1.3704.1.* are read as exact DER; one that is absent is an error.
"""

import re
from dataclasses import dataclass

from cryptography.x509.oid import ObjectIdentifier

from attestation import der
from attestation.errors import MalformedEvidence, UntrustedEndorsement
from attestation.snp.product import ProductLine, Tcb
from attestation.snp.report import SigningKey
from attestation.x509 import Certificate

_ARC = "1.3.6.1.4.1.3704.1"
STRUCT_VERSION, PRODUCT_NAME, HWID, CSP_ID = (
    ObjectIdentifier(f"{_ARC}.{arc}") for arc in (1, 2, 4, 5)
)
SPLS = {  # TCB component -> its security patch level
    "boot_loader": ObjectIdentifier(f"{_ARC}.3.1"),
    "tee": ObjectIdentifier(f"{_ARC}.3.2"),
    "snp": ObjectIdentifier(f"{_ARC}.3.3"),
    "microcode": ObjectIdentifier(f"{_ARC}.3.8"),
    "fmc": ObjectIdentifier(f"{_ARC}.3.9"),
}
MAX_SPL = 255
MAX_TEXT_BYTES = 128
_IA5_STRING = 0x16
_NAMES: dict[str, SigningKey] = {"SEV-VCEK": "VCEK", "SEV-VLEK": "VLEK"}
_STEPPING = re.compile(r"-[A-Z][0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class VekIdentity:
    """What AMD certified with the key: ``hwid`` of a VCEK, ``csp_id`` of a VLEK, never both."""

    kind: SigningKey
    product: ProductLine
    product_name: str
    tcb: Tcb
    hwid: bytes | None
    csp_id: str | None


def parse_vek_identity(certificate: Certificate, product: ProductLine) -> VekIdentity:
    """The AMD extensions of a VCEK or VLEK of this product line.

    Raises: MalformedEvidence("format"); UntrustedEndorsement("signer_role"): neither a VCEK nor a
    VLEK, or of another product line.
    """
    kind = _NAMES.get(certificate.common_name)
    if kind is None:
        raise UntrustedEndorsement("signer_role", "leaf is named neither SEV-VCEK nor SEV-VLEK")
    struct_version = _integer(certificate, STRUCT_VERSION)
    product_name = _text(certificate, PRODUCT_NAME)
    is_of_product = product_name.startswith(product.name) and (
        product_name == product.name or _STEPPING.fullmatch(product_name[len(product.name) :])
    )
    if not is_of_product or struct_version != product.struct_version:
        raise UntrustedEndorsement(
            "signer_role",
            f"{kind}: product name {product_name}, structure {struct_version}, want {product.name}",
        )
    levels = {name: _integer(certificate, SPLS[name]) for name, _ in product.tcb_bytes}
    foreign = HWID if kind == "VLEK" else CSP_ID
    if certificate.extension(foreign) is not None:
        raise MalformedEvidence("format", f"{kind}: has the extension of the other kind of key")
    return VekIdentity(
        kind=kind,
        product=product,
        product_name=product_name,
        tcb=Tcb(**levels),
        hwid=_hwid(certificate, product.hwid_bytes) if kind == "VCEK" else None,
        csp_id=_text(certificate, CSP_ID) if kind == "VLEK" else None,
    )


def _extension(certificate: Certificate, oid: ObjectIdentifier) -> bytes:
    value = certificate.extension(oid)
    if value is None:
        raise MalformedEvidence("format", f"VEK: no extension {oid.dotted_string}")
    return value


def _integer(certificate: Certificate, oid: ObjectIdentifier) -> int:
    return der.unsigned(der.read_one(_extension(certificate, oid), der.INTEGER), maximum=MAX_SPL)


def _text(certificate: Certificate, oid: ObjectIdentifier) -> str:
    raw = der.read_one(_extension(certificate, oid), _IA5_STRING)
    if not raw or len(raw) > MAX_TEXT_BYTES or not all(0x20 <= byte < 0x7F for byte in raw):
        raise MalformedEvidence("format", f"VEK: {oid.dotted_string} is not short printable text")
    return raw.decode("ascii")


def _hwid(certificate: Certificate, num_bytes: int) -> bytes:
    """Older VCEKs hold the raw bytes, newer ones an OCTET STRING around them."""
    value = _extension(certificate, HWID)
    raw = value if len(value) == num_bytes else der.read_one(value, der.OCTET_STRING)
    if len(raw) != num_bytes:
        raise MalformedEvidence("format", f"VEK: hwID of {len(raw)} bytes, want {num_bytes}")
    return raw
