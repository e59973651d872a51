"""What did the holder of this key sign in this XML?  [XML Signature 1.1; Canonical XML 1.1]

One profile, the one of NVIDIA's RIMs: a single enveloped signature over the whole document, C14N
1.1, SHA-384, ECDSA on P-384. Anything else is refused rather than interpreted, and what is read
afterwards comes from the canonical bytes that were signed, never from the document received.

``lxml`` offers C14N 1.0. For a whole document without ``xml:`` attributes, comments and DTD, which
are all refused here, versions 1.0 and 1.1 give the same bytes  [Canonical XML 1.1 sec. 1.2].
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from lxml import etree  # type: ignore[import-untyped]

from attestation.errors import MalformedEvidence, UntrustedEndorsement
from attestation.es384 import SIGNATURE_BYTES, is_signed_es384

MAX_DOCUMENT_BYTES = 256 * 1024  # ten times the largest RIM seen
MAX_DEPTH = 16
MAX_ELEMENTS = 4096
MAX_ATTRIBUTES = 64  # of one element; C14N sorts them one by one
MAX_NAMESPACES = 32  # in scope at one element
MAX_CERTIFICATES = 8
XML_SPACE = " \t\r\n"

DSIG = "http://www.w3.org/2000/09/xmldsig#"
C14N_1_1 = "http://www.w3.org/2006/12/xml-c14n11"
ECDSA_SHA384 = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"
SHA384 = "http://www.w3.org/2001/04/xmldsig-more#sha384"
ENVELOPED = DSIG + "enveloped-signature"
_XML_NAMESPACE = "{http://www.w3.org/XML/1998/namespace}"
_NO_SPACE = dict.fromkeys(map(ord, XML_SPACE))
_DECLARATION = re.compile(
    rb"""<\?xml[ \t\r\n]+version=(?P<q>["'])1\.0(?P=q)"""
    rb"""([ \t\r\n]+encoding=(?P<r>["'])(?i:utf-8)(?P=r))?[ \t\r\n]*\?>"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element; ``name`` and the keys of ``attributes`` are "{namespace}local" or "local"."""

    name: str
    attributes: Mapping[str, str]
    text: str  # all character data directly inside, in order
    children: "tuple[Element, ...]"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EnvelopedSignature:
    """A document and its signature, each followed to the letter; nothing is verified yet.

    ``certificates`` are DER in the order of X509Data: whose they are is the caller's question.
    """

    what: str
    certificates: tuple[bytes, ...]
    content: bytes  # canonical, without the signature
    signed_info: bytes  # canonical
    digest: bytes
    signature: bytes

    def verify(self, key: ec.EllipticCurvePublicKey) -> Element:
        """The root element of what ``key`` signed, read from the canonical bytes.

        Raises: UntrustedEndorsement("rim_signature").
        """
        if not is_signed_es384(key, self.signed_info, self.signature):
            raise _refused(self.what, "the signature does not hold")
        if not hmac.compare_digest(hashlib.sha384(self.content).digest(), self.digest):
            raise _refused(self.what, "the content is not what was signed")
        return _element(_parse(self.content, self.what))


def parse_enveloped(data: bytes, *, what: str) -> EnvelopedSignature:
    """Steps: 1. bounded, plain XML; 2. one signature; 3. its profile; 4. its parts.

    Raises: MalformedEvidence("format"): 1; UntrustedEndorsement("rim_signature"): 2 to 4.
    """
    root = _parse(_plain_text(data, what), what)  # 1
    signature = _only_signature(root, what)  # 2
    canonical_info = _canonical(signature[0], what)
    digest = _signed_digest(_element(_parse(canonical_info, what)), what)  # 3
    value, certificates = _unsigned_parts(_element(signature), what)  # 4
    _detach(signature)
    return EnvelopedSignature(
        what=what,
        certificates=certificates,
        content=_canonical(root, what),
        signed_info=canonical_info,
        digest=digest,
        signature=value,
    )


def _plain_text(data: bytes, what: str) -> bytes:
    """UTF-8 without DTD, comment, CDATA or processing instruction, told before any XML parser."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise MalformedEvidence(
            "format", f"{what}: {len(data)} bytes, at most {MAX_DOCUMENT_BYTES}"
        )
    declaration = _DECLARATION.match(data)
    text = data[declaration.end() :] if declaration else data
    if b"<!" in text or b"<?" in text:
        raise MalformedEvidence("format", f"{what}: holds a declaration, comment or instruction")
    return text


def _parse(text: bytes, what: str) -> Any:
    """The root of bounded XML."""
    parser = etree.XMLParser(
        encoding="utf-8",  # whatever the document claims
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        recover=False,
        remove_blank_text=False,
    )
    try:
        root = etree.fromstring(text, parser)
    except (etree.LxmlError, ValueError) as err:
        raise MalformedEvidence("format", f"{what}: not well-formed XML") from err
    _require_bounded(root, what)
    return root


def _require_bounded(root: Any, what: str) -> None:
    """Depth, counts and no ``xml:`` attribute; parents before children, so that each is cheap."""
    pending, num_elements = [(root, 1)], 0
    while pending:
        element, depth = pending.pop()
        num_elements += 1
        if depth > MAX_DEPTH or num_elements > MAX_ELEMENTS:
            raise MalformedEvidence("format", f"{what}: too deep or too many elements")
        if not isinstance(element.tag, str):  # a comment, instruction or entity
            raise MalformedEvidence("format", f"{what}: holds more than elements and text")
        if len(element.attrib) > MAX_ATTRIBUTES or len(element.nsmap) > MAX_NAMESPACES:
            raise MalformedEvidence("format", f"{what}: too many attributes of one element")
        if any(name.startswith(_XML_NAMESPACE) for name in element.attrib):
            raise MalformedEvidence("format", f"{what}: has an xml: attribute")
        pending.extend((child, depth + 1) for child in element)


def _only_signature(root: Any, what: str) -> Any:
    found = list(root.iter(f"{{{DSIG}}}Signature"))
    if len(found) != 1 or found[0].getparent() is not root:
        raise _refused(what, f"{len(found)} signatures, want one directly inside the root")
    names = [child.tag for child in found[0]]
    if names != [f"{{{DSIG}}}{name}" for name in ("SignedInfo", "SignatureValue", "KeyInfo")]:
        raise _refused(what, "the signature is not SignedInfo, SignatureValue and KeyInfo")
    return found[0]


def _signed_digest(info: Element, what: str) -> bytes:
    """DigestValue of a SignedInfo that follows the one profile exactly."""
    c14n, method, reference = _children(
        info, ("CanonicalizationMethod", "SignatureMethod", "Reference"), what
    )
    _require_algorithm(c14n, C14N_1_1, what)
    _require_algorithm(method, ECDSA_SHA384, what)
    transforms, digest_method, digest_value = _children(
        reference, ("Transforms", "DigestMethod", "DigestValue"), what, attributes={"URI": ""}
    )
    enveloped, canonical = _children(transforms, ("Transform", "Transform"), what)
    _require_algorithm(enveloped, ENVELOPED, what)
    _require_algorithm(canonical, C14N_1_1, what)
    _require_algorithm(digest_method, SHA384, what)
    return _base64(digest_value, what, num_bytes=hashlib.sha384().digest_size)


def _unsigned_parts(signature: Element, what: str) -> tuple[bytes, tuple[bytes, ...]]:
    """(SignatureValue, certificates)."""
    _, value, key_info = _children(signature, ("SignedInfo", "SignatureValue", "KeyInfo"), what)
    (x509_data,) = _children(key_info, ("X509Data",), what)
    num_certificates = len(x509_data.children)
    if not 1 <= num_certificates <= MAX_CERTIFICATES:
        raise _refused(what, f"{num_certificates} certificates, at most {MAX_CERTIFICATES}")
    certificates = _children(x509_data, ("X509Certificate",) * num_certificates, what)
    return (
        _base64(value, what, num_bytes=SIGNATURE_BYTES),
        tuple(_base64(certificate, what) for certificate in certificates),
    )


def _children(
    element: Element,
    names: tuple[str, ...],
    what: str,
    *,
    attributes: Mapping[str, str] | None = None,
) -> tuple[Element, ...]:
    """The children, which are exactly ``names``, with white space between them and nothing else."""
    if tuple(child.name for child in element.children) != tuple(f"{{{DSIG}}}{n}" for n in names):
        raise _refused(what, f"{_local(element)} is not made of {', '.join(names)}")
    if element.attributes != (attributes or {}) or element.text.strip(XML_SPACE):
        raise _refused(what, f"{_local(element)} has unexpected attributes or text")
    return element.children


def _require_algorithm(element: Element, algorithm: str, what: str) -> None:
    _children(element, (), what, attributes={"Algorithm": algorithm})


def _base64(element: Element, what: str, *, num_bytes: int | None = None) -> bytes:
    """The text in base64, white space aside, in the one spelling an encoder gives."""
    text = element.text.translate(_NO_SPACE)
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as err:
        raise _refused(what, f"{_local(element)} is not base64") from err
    if element.attributes or element.children or base64.b64encode(value).decode("ascii") != text:
        raise _refused(what, f"{_local(element)} is not plain base64")
    if num_bytes is not None and len(value) != num_bytes:
        raise _refused(what, f"{_local(element)} has {len(value)} bytes, want {num_bytes}")
    return value


def _detach(signature: Any) -> None:
    """Removes the element and keeps the text after it, as the enveloped transform does."""
    parent, previous, tail = signature.getparent(), signature.getprevious(), signature.tail
    if tail and previous is not None:
        previous.tail = (previous.tail or "") + tail
    elif tail:
        parent.text = (parent.text or "") + tail
    parent.remove(signature)


def _canonical(element: Any, what: str) -> bytes:
    try:
        canonical = etree.tostring(element, method="c14n", with_comments=False)
    except (etree.LxmlError, ValueError) as err:  # a relative namespace, for one
        raise MalformedEvidence("format", f"{what}: has no canonical form") from err
    return bytes(canonical)


def _element(node: Any) -> Element:
    """``lxml`` ends here; its depth is bounded already."""
    return Element(
        name=node.tag,
        attributes=dict(node.attrib),
        text="".join(_texts(node)),
        children=tuple(_element(child) for child in node),
    )


def _texts(node: Any) -> Iterator[str]:
    yield node.text or ""
    for child in node:
        yield child.tail or ""


def _local(element: Element) -> str:
    return element.name.rpartition("}")[2][:64]


def _refused(what: str, reason: str) -> UntrustedEndorsement:
    return UntrustedEndorsement("rim_signature", f"{what}: {reason}")
