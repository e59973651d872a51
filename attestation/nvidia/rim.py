"""Which measurements does NVIDIA vouch for?  [TCG RIM Information Model; ISO/IEC 19770-2 SWID]

A Reference Integrity Manifest is signed XML. Its chain, signature and dates come first; what it
says is read from the bytes that were signed. RIM index i is measurement block i + 1 of a report.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from attestation.anchors import TrustAnchors
from attestation.errors import EndorsementMismatch, MalformedEvidence, UntrustedEndorsement
from attestation.nvidia.xmldsig import XML_SPACE, Element, parse_enveloped
from attestation.x509 import (
    KeyKind,
    VerifiedChain,
    parse_certificate,
    require_chain_current,
    verify_chain,
)

RimKind = Literal["driver", "vbios", "switch"]

CHAIN_LENGTH = 4  # signer, L3, L2, root
MAX_ENTRIES = 64
MAX_ALTERNATIVES = 16
MAX_MEASUREMENT_BYTES = 64
_KEYS: frozenset[KeyKind] = frozenset({"p384"})
_SWID = "{http://standards.iso.org/iso/19770/-2/2015/schema.xsd}"
_HASH = "{http://www.w3.org/2001/04/xmlenc#sha384}Hash"
# "Debug Only" CAs have the same form of name and fit none of these.
_ROLES = (
    re.compile(r"HCC RIM L4 Signer|NVIDIA Reference Value L4 [A-Z0-9]+"),
    re.compile(r"NVIDIA Reference Value L3 [A-Z0-9]+ [0-9]+"),
    re.compile(r"NVIDIA Reference Value [A-Z0-9]+ CA"),
)
_DRIVER_VERSION = re.compile(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?")
_VBIOS_VERSION = re.compile(r"[0-9A-F]{2}(\.[0-9A-F]{2}){4}")
_PRODUCT = re.compile(r"[A-Z0-9]{2,16}")
_RESOURCE_ATTRIBUTES = frozenset({"type", "index", "active", "alternatives", "name", "size"})
_WHOLE_TAG = {"corpus": "false", "patch": "false", "supplemental": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RimEntry:
    """One reference value; only an active one counts, and any of ``alternatives`` is right."""

    index: int
    active: bool
    alternatives: tuple[bytes, ...]  # each of size_bytes
    size_bytes: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRim:
    """Made by ``verify_rim`` alone: signed under a pinned root and current."""

    kind: RimKind
    product: str
    version: str  # as the report's version reads, VBIOS and switch in upper case
    entries: Mapping[int, RimEntry]
    chain: VerifiedChain
    sha256: str  # of the file as received

    @property
    def not_after(self) -> datetime:
        """The earliest end of any validity in its chain."""
        return self.chain.not_after

    @property
    def active(self) -> tuple[RimEntry, ...]:
        """The entries that count, by index."""
        return tuple(
            self.entries[index] for index in sorted(self.entries) if self.entries[index].active
        )


def verify_rim(
    xml: bytes, *, anchors: TrustAnchors, at: datetime, may_be_signed_later: bool = False
) -> VerifiedRim:
    """Steps: 1. one signature of the one profile; 2. chain to the pinned root, each CA in its role;
    3. signature and content; 4. dates; 5. what it says.

    NVIDIA signs its RIMs anew. ``may_be_signed_later`` takes one whose certificates start after
    ``at``, to judge recorded Evidence at its own time; one that has ended is never taken.

    Raises: MalformedEvidence("format"): 1, 2, 5; UntrustedEndorsement: rim_signature (1, 3),
    chain, chain_order, chain_signature, untrusted_root, signer_role (2), certificate_time (4);
    BadSignature("bad_key"): a certificate key that is not on P-384.
    """
    what = "RIM"
    signed = parse_enveloped(xml, what=what)  # 1
    chain = verify_chain(  # 2
        tuple(
            parse_certificate(der, what="RIM chain", key_kinds=_KEYS) for der in signed.certificates
        ),
        num_certificates=CHAIN_LENGTH,
        family="nvidia-rim",
        anchors=anchors,
        what="RIM chain",
    )
    _require_roles(chain)
    root = signed.verify(chain.leaf.ec_key)  # 3
    start = max(certificate.not_before for certificate in chain.certificates)
    require_chain_current(chain, max(at, start) if may_be_signed_later else at)  # 4
    meta, payload = _members(root)  # 5
    kind, product, version = _identity(meta)
    return VerifiedRim(
        kind=kind,
        product=product,
        version=version,
        entries=_entries(payload),
        chain=chain,
        sha256=hashlib.sha256(xml).hexdigest(),
    )


def require_rim(rim: VerifiedRim, *, kind: RimKind, product: str, version: str) -> None:
    """The RIM is the one for this device's chip and version; versions compare in any case.

    Raises: EndorsementMismatch: rim_kind (another kind or chip), rim_version.
    """
    if (rim.kind, rim.product) != (kind, product):
        raise EndorsementMismatch(
            "rim_kind", f"RIM: for {rim.kind} of {rim.product}, want {kind} of {product[:16]!r}"
        )
    if rim.version != version.upper():
        raise EndorsementMismatch(
            "rim_version", f"RIM: for {kind} {rim.version}, the device runs {version[:32]!r}"
        )


def _require_roles(chain: VerifiedChain) -> None:
    for certificate, role in zip(chain.certificates[:-1], _ROLES, strict=True):
        if role.fullmatch(certificate.common_name) is None:
            raise UntrustedEndorsement(
                "signer_role", f"RIM chain: {certificate.common_name[:64]} is in no role for RIMs"
            )


def _members(root: Element) -> tuple[Element, Element]:
    """(Meta, Payload) of a tag that stands alone: no patch to or supplement of another."""
    if root.name != f"{_SWID}SoftwareIdentity" or root.text.strip(XML_SPACE):
        raise MalformedEvidence("format", "RIM: the signed document is no SoftwareIdentity")
    if any(root.attributes.get(name, value) != value for name, value in _WHOLE_TAG.items()):
        raise MalformedEvidence("format", "RIM: only a part of a reference")
    names = tuple(child.name for child in root.children)
    if names != (f"{_SWID}Entity", f"{_SWID}Meta", f"{_SWID}Payload"):
        raise MalformedEvidence("format", "RIM: not made of Entity, Meta and Payload")
    _, meta, payload = root.children
    return meta, payload


def _identity(meta: Element) -> tuple[RimKind, str, str]:
    """(kind, product, version); driver and VBIOS differ in the form of their version alone."""
    edition, product = meta.attributes.get("edition"), meta.attributes.get("product", "")
    version = meta.attributes.get("colloquialVersion", "").upper()
    if _PRODUCT.fullmatch(product) is None:
        raise MalformedEvidence("format", "RIM: names no product")
    if edition == "GPU" and _DRIVER_VERSION.fullmatch(version):
        return "driver", product, version
    if edition in ("GPU", "SWITCH") and _VBIOS_VERSION.fullmatch(version):
        return "vbios" if edition == "GPU" else "switch", product, version
    raise MalformedEvidence("format", "RIM: edition and version are of no known kind")


def _entries(payload: Element) -> Mapping[int, RimEntry]:
    if not 1 <= len(payload.children) <= MAX_ENTRIES or payload.text.strip(XML_SPACE):
        raise MalformedEvidence("format", f"RIM: not 1 to {MAX_ENTRIES} entries")
    entries: dict[int, RimEntry] = {}
    for resource in payload.children:
        entry = _entry(resource)
        if entry.index in entries:
            raise MalformedEvidence("format", f"RIM: index {entry.index} occurs twice")
        entries[entry.index] = entry
    if not any(entry.active for entry in entries.values()):
        raise MalformedEvidence("format", "RIM: no active entry, so it would match anything")
    return entries


def _entry(resource: Element) -> RimEntry:
    """One Resource; an attribute we do not know could change what the others mean."""
    attributes = resource.attributes
    is_plain = not resource.children and not resource.text.strip(XML_SPACE)
    if (
        resource.name != f"{_SWID}Resource"
        or attributes.get("type") != "Measurement"
        or not is_plain
    ):
        raise MalformedEvidence("format", "RIM: an entry is no Measurement")
    num_alternatives = _number(attributes, "alternatives", 1, MAX_ALTERNATIVES)
    size_bytes = _number(attributes, "size", 1, MAX_MEASUREMENT_BYTES)
    hashes = [f"{_HASH}{i}" for i in range(num_alternatives)]
    if attributes.keys() != _RESOURCE_ATTRIBUTES | set(hashes):
        raise MalformedEvidence("format", "RIM: an entry has other attributes than it should")
    active = attributes["active"]
    if active not in ("True", "False"):
        raise MalformedEvidence("format", "RIM: active is neither True nor False")
    return RimEntry(
        index=_number(attributes, "index", 0, MAX_ENTRIES - 1),
        active=active == "True",
        alternatives=tuple(_hash(attributes[name], size_bytes) for name in hashes),
        size_bytes=size_bytes,
        name=attributes["name"],
    )


def _number(attributes: Mapping[str, str], name: str, minimum: int, maximum: int) -> int:
    text = attributes.get(name, "")
    if re.fullmatch(r"0|[1-9][0-9]{0,3}", text) is None or not minimum <= int(text) <= maximum:
        raise MalformedEvidence("format", f"RIM: {name} is not a number of {minimum}..{maximum}")
    return int(text)


def _hash(text: str, num_bytes: int) -> bytes:
    if re.fullmatch(r"[0-9a-fA-F]+", text) is None or len(text) != 2 * num_bytes:
        raise MalformedEvidence("format", f"RIM: a value is not {num_bytes} bytes of hex")
    return bytes.fromhex(text)
