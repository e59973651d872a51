"""RIMs under the test root: a good one of each kind, and one fault each with its code.

Where a change touches something signed the document is signed again, so exactly one check can fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.vectors.nvidia_refs.pki import (
    AT,
    DAY,
    ISSUES,
    L3,
    ROOT,
    SIGNER,
    Issue,
    Signing,
    chain,
    sign,
)

XMLDSIG = "XML Signature 1.1"
SWID = "ISO/IEC 19770-2; TCG RIM Information Model"
PKIX = "RFC 5280 sec. 6.1"
XML = "XML 1.0"
_NS = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd"
_SHA384_NS = "http://www.w3.org/2001/04/xmlenc#sha384"
_HASHES = ("11" * 48, "22" * 48, "33" * 48)


@dataclass(frozen=True, kw_only=True)
class RimCase:
    """``code`` None is a good RIM; ``facts`` are then read from it."""

    change: str
    source: str
    code: str | None
    make: Callable[[], str]
    facts: dict[str, object] | None = None


def resource(index: int, *, active: bool = True, hashes: tuple[str, ...] = _HASHES[:1]) -> str:
    """One entry, written as NVIDIA writes it."""
    values = " ".join(f'ns2:Hash{i}="{value}"' for i, value in enumerate(hashes))
    return (
        f'<ns0:Resource type="Measurement" index="{index}" active="{active}" '
        f'alternatives="{len(hashes)}" {values} name="Measurement_{index}" size="48"/>'
    )


def document(
    *,
    edition: str = "GPU",
    product: str = "GH100",
    version: str = "550.90.07",
    resources: tuple[str, ...] | None = None,
) -> str:
    """An unsigned SWID tag."""
    if resources is None:
        resources = (
            resource(0, active=False, hashes=("00" * 48,)),
            resource(1),
            resource(7, hashes=_HASHES),
        )
    lines = "\n        ".join(resources)
    return f"""<SoftwareIdentity xmlns="{_NS}" xmlns:ns0="{_NS}" xmlns:ns2="{_SHA384_NS}" \
corpus="false" name="{product}" patch="false" supplemental="false" tagId="t" version="1.0">
    <ns0:Entity name="NVIDIA Corporation" role="softwareCreator tagCreator"/>
    <ns0:Meta colloquialVersion="{version}" edition="{edition}" product="{product}"/>
    <ns0:Payload>
        {lines}
    </ns0:Payload>
</SoftwareIdentity>
"""


GOOD = sign(document())


def _edited(old: str, new: str, count: int = -1) -> str:
    """The good RIM, changed after it was signed."""
    assert old in GOOD
    return GOOD.replace(old, new, count)


def _resigned(old: str, new: str) -> str:
    """Changed, then signed."""
    assert old in document()
    return sign(document().replace(old, new, 1))


def _signed(**changes: object) -> str:
    return sign(document(), replace(Signing(), **changes))  # type: ignore[arg-type]


def _chained(**changes: Issue | None) -> str:
    """Another chain; None leaves a certificate out."""
    issues = {**ISSUES, **changes}
    return _signed(certificates=tuple(issue.make() for issue in issues.values() if issue))


def _in_other_root() -> str:
    """The signed document inside another one, which shows other values first."""
    return document(resources=(resource(1, hashes=("ee" * 48,)),)).replace(
        "</SoftwareIdentity>", GOOD.strip() + "</SoftwareIdentity>"
    )


def _signature_of(signed: str) -> str:
    return signed[signed.index("<ds:Signature ") : signed.index("</ds:Signature>") + 15]


def _signed_copy_in_signature() -> str:
    """The signed content kept in an Object of the signature, other content in its place."""
    kept = f"<ds:Object>{document().strip()}</ds:Object></ds:Signature>"
    return _edited(_HASHES[0], "ee" * 48, 1).replace("</ds:Signature>", kept)


def _bomb() -> str:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "lol"}">' for i in range(10))
    return f"<!DOCTYPE SoftwareIdentity [{entities}]>" + _edited('tagId="t"', 'tagId="&e9;"')


def _deep() -> str:
    return _edited("</ns0:Payload>", "<a>" * 200 + "</a>" * 200 + "</ns0:Payload>")


def _wide() -> str:
    attributes = " ".join(f'a{i}="x"' for i in range(2000))
    return _edited("<ns0:Payload>", f"<ns0:Payload {attributes}>")


_COMMENT = _HASHES[0][:10] + "<!-- -->" + _HASHES[0][10:]
_OTHER_ROOT = Issue(subject=ROOT, issuer=ROOT, path_length=1)  # same key, not the pinned bytes

GOOD_CASES = (
    RimCase(
        change="driver",
        source=SWID,
        code=None,
        make=lambda: GOOD,
        facts={"kind": "driver", "product": "GH100", "version": "550.90.07", "active": [1, 7]},
    ),
    RimCase(
        change="VBIOS",
        source=SWID,
        code=None,
        make=lambda: sign(document(version="96.00.9f.00.01")),
        facts={"kind": "vbios", "product": "GH100", "version": "96.00.9F.00.01", "active": [1, 7]},
    ),
    RimCase(
        change="switch",
        source=SWID,
        code=None,
        make=lambda: sign(document(edition="SWITCH", product="LS10", version="96.10.55.00.01")),
        facts={"kind": "switch", "product": "LS10", "version": "96.10.55.00.01", "active": [1, 7]},
    ),
    RimCase(
        change="XML declaration",
        source=XML,
        code=None,
        make=lambda: '<?xml version="1.0" encoding="UTF-8"?>\n' + GOOD,
        facts={"kind": "driver", "product": "GH100", "version": "550.90.07", "active": [1, 7]},
    ),
    RimCase(
        change="signature before the payload",
        source=XMLDSIG,
        code=None,
        make=lambda: _signed(before="<ns0:Payload>"),
        facts={"kind": "driver", "product": "GH100", "version": "550.90.07", "active": [1, 7]},
    ),
)


def _bad(change: str, source: str, code: str, make: Callable[[], str]) -> RimCase:
    return RimCase(change=change, source=source, code=code, make=make)


_XML_CASES = (
    _bad("empty", XML, "format", lambda: ""),
    _bad("cut short", XML, "format", lambda: GOOD[: len(GOOD) // 2]),
    _bad("text after the end", XML, "format", lambda: GOOD + "x"),
    _bad("comment in a value", XML, "format", lambda: _edited(_HASHES[0], _COMMENT)),
    _bad("comment at the end", XML, "format", lambda: GOOD + "<!-- -->"),
    _bad("instruction", XML, "format", lambda: _edited("<ns0:Payload>", "<?x y?><ns0:Payload>")),
    _bad("CDATA", XML, "format", lambda: _edited("<ns0:Payload>", "<ns0:Payload><![CDATA[ ]]>")),
    _bad("DTD", XML, "format", lambda: "<!DOCTYPE SoftwareIdentity>" + GOOD),
    _bad(
        "external entity",
        XML,
        "format",
        lambda: (
            '<!DOCTYPE SoftwareIdentity [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
            + _edited("</ns0:Payload>", "&e;</ns0:Payload>")
        ),
    ),
    _bad("entity bomb", XML, "format", _bomb),
    _bad("undeclared entity", XML, "format", lambda: _edited('tagId="t"', 'tagId="&e;"')),
    _bad("deep nesting", XML, "format", _deep),
    _bad("many attributes", XML, "format", _wide),
    _bad(
        "other encoding",
        XML,
        "format",
        lambda: '<?xml version="1.0" encoding="UTF-7"?>' + GOOD,
    ),
    _bad("XML 1.1", XML, "format", lambda: '<?xml version="1.1"?>' + GOOD),
    _bad(
        "xml:id, signed",
        "Canonical XML 1.1 sec. 2.4",
        "format",
        lambda: _resigned('tagId="t"', 'tagId="t" xml:id="x"'),
    ),
    _bad(
        "relative namespace",
        "Canonical XML 1.1 sec. 1.3",
        "format",
        lambda: _edited('tagId="t"', 'tagId="t" xmlns:r="../r"'),
    ),
)

_SIGNATURE_CASES = (
    _bad("unsigned", XMLDSIG, "rim_signature", document),
    _bad("value edited", XMLDSIG, "rim_signature", lambda: _edited(_HASHES[0], "ee" * 48, 1)),
    _bad("deactivated", XMLDSIG, "rim_signature", lambda: _edited('"True"', '"False"', 1)),
    _bad("version edited", XMLDSIG, "rim_signature", lambda: _edited("550.90.07", "550.90.08")),
    _bad("white space added", XMLDSIG, "rim_signature", lambda: _edited("<ns0:Meta", " <ns0:Meta")),
    _bad(
        "text after the signature",
        XMLDSIG,
        "rim_signature",
        lambda: _edited("ture></S", "ture> </S"),
    ),
    _bad(
        "namespace added",
        "Canonical XML 1.1 sec. 2.3",
        "rim_signature",
        lambda: _edited('tagId="t"', 'tagId="t" xmlns:z="urn:z"'),
    ),
    _bad(
        "entry added",
        XMLDSIG,
        "rim_signature",
        lambda: _edited("    </ns0:P", resource(9) + "</ns0:P"),
    ),
    _bad(
        "payload added",
        XMLDSIG,
        "rim_signature",
        lambda: _edited("<ns0:Payload>", f"<ns0:Payload>{resource(1)}</ns0:Payload><ns0:Payload>"),
    ),
    _bad("wrapped in another document", XMLDSIG, "rim_signature", _in_other_root),
    _bad(
        "signed content moved into the signature",
        XMLDSIG,
        "rim_signature",
        _signed_copy_in_signature,
    ),
    _bad(
        "two signatures",
        XMLDSIG,
        "rim_signature",
        lambda: _edited("</SoftwareIdentity>", _signature_of(GOOD) + "</SoftwareIdentity>"),
    ),
    _bad(
        "signature below the payload",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(before="</ns0:Payload>"),
    ),
    _bad(
        "signature of another document",
        XMLDSIG,
        "rim_signature",
        lambda: GOOD.replace(
            _signature_of(GOOD), _signature_of(sign(document(version="550.90.08")))
        ),
    ),
    _bad(
        "signature in another namespace",
        XMLDSIG,
        "rim_signature",
        lambda: _edited("http://www.w3.org/2000/09/xmldsig#", "urn:not-xmldsig#"),
    ),
    _bad(
        "C14N 1.0",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(c14n="http://www.w3.org/TR/2001/REC-xml-c14n-20010315"),
    ),
    _bad(
        "exclusive C14N",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(c14n="http://www.w3.org/2001/10/xml-exc-c14n#"),
    ),
    _bad(
        "C14N 1.1 with comments",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(c14n=Signing().c14n + "#WithComments"),
    ),
    _bad(
        "ECDSA-SHA256",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(method="http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"),
    ),
    _bad(
        "HMAC",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(method="http://www.w3.org/2000/09/xmldsig#hmac-sha1"),
    ),
    _bad(
        "SHA-256 digest",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(digest="http://www.w3.org/2001/04/xmlenc#sha256"),
    ),
    _bad(
        "one transform",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(transforms=Signing().transforms[:1]),
    ),
    _bad(
        "no enveloped transform",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(transforms=Signing().transforms[1:]),
    ),
    _bad(
        "transforms in another order",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(transforms=Signing().transforms[::-1]),
    ),
    _bad(
        "another first transform",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(transforms=(Signing().c14n, Signing().c14n)),
    ),
    _bad(
        "another second transform",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(
            transforms=(*Signing().transforms[:1], "http://www.w3.org/2001/10/xml-exc-c14n#")
        ),
    ),
    _bad(
        "transform repeated",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(transforms=(*Signing().transforms, Signing().c14n)),
    ),
    _bad(
        "XPath transform",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(
            transforms=("http://www.w3.org/TR/1999/REC-xpath-19991116", *Signing().transforms)
        ),
    ),
    _bad(
        "transform with parameters",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(transform_body="<ds:XPath>true()</ds:XPath>"),
    ),
    _bad("URI of an element", XMLDSIG, "rim_signature", lambda: _signed(uri="#t")),
    _bad("URI of a file", XMLDSIG, "rim_signature", lambda: _signed(uri="file:///etc/hostname")),
    _bad(
        "URI of the root by XPointer", XMLDSIG, "rim_signature", lambda: _signed(uri="#xpointer(/)")
    ),
    _bad("no URI", XMLDSIG, "rim_signature", lambda: _signed(uri=None)),
    _bad(
        "second reference",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(reference_extra='<ds:Reference URI="#other"/>'),
    ),
    _bad(
        "key value beside the certificates",
        XMLDSIG,
        "rim_signature",
        lambda: _signed(key_info_extra="<ds:KeyName>k</ds:KeyName>"),
    ),
    _bad(
        "text in the signature",
        XMLDSIG,
        "rim_signature",
        lambda: _edited("<ds:KeyInfo>", "x<ds:KeyInfo>"),
    ),
    _bad(
        "signature value cut",
        XMLDSIG,
        "rim_signature",
        lambda: _with_signature_value("AAAA"),
    ),
    _bad(
        "signature value zero", XMLDSIG, "rim_signature", lambda: _with_signature_value("A" * 128)
    ),
    _bad("signature value empty", XMLDSIG, "rim_signature", lambda: _with_signature_value("")),
    _bad("no certificates", XMLDSIG, "rim_signature", lambda: _signed(certificates=())),
    _bad(
        "nine certificates", XMLDSIG, "rim_signature", lambda: _signed(certificates=chain()[:1] * 9)
    ),
    _bad("signed by another key", XMLDSIG, "rim_signature", lambda: _signed(key_name=L3)),
)


def _with_signature_value(value: str) -> str:
    start = GOOD.index("<ds:SignatureValue>") + len("<ds:SignatureValue>")
    return GOOD[:start] + value + GOOD[GOOD.index("</ds:SignatureValue>") :]


_CHAIN_CASES = (
    _bad("own root", PKIX, "untrusted_root", lambda: _chained(root=_OTHER_ROOT)),
    _bad("root left out", PKIX, "chain", lambda: _chained(root=None)),
    _bad("L3 left out", PKIX, "chain", lambda: _chained(l3=None)),
    _bad("reversed", PKIX, "chain_order", lambda: _signed(certificates=chain()[::-1])),
    _bad(
        "L3 of another key",
        PKIX,
        "chain_signature",
        lambda: _chained(l3=replace(ISSUES["l3"], key_name="mine")),
    ),
    _bad(
        "signer expired",
        PKIX,
        "certificate_time",
        lambda: _chained(signer=replace(ISSUES["signer"], not_after=AT - DAY)),
    ),
    _bad(
        "signer of the future",
        PKIX,
        "certificate_time",
        lambda: _chained(signer=replace(ISSUES["signer"], not_before=AT + DAY)),
    ),
    _bad(
        "L3 expired",
        PKIX,
        "certificate_time",
        lambda: _chained(l3=replace(ISSUES["l3"], not_after=AT - DAY)),
    ),
    _bad(
        "signer in another role",
        PKIX,
        "signer_role",
        lambda: _chained(signer=replace(ISSUES["signer"], subject="GH100 Leaf", key_name=SIGNER)),
    ),
    _bad("debug L3", PKIX, "signer_role", lambda: _debug_chain()),
    _bad(
        "signer is a CA",
        PKIX,
        "chain",
        lambda: _chained(signer=replace(ISSUES["signer"], path_length=0)),
    ),
    _bad(
        "L3 is no CA", PKIX, "chain", lambda: _chained(l3=replace(ISSUES["l3"], path_length=None))
    ),
    _bad(
        "signer on P-256",
        PKIX,
        "bad_key",
        lambda: _chained(signer=replace(ISSUES["signer"], curve=ec.SECP256R1())),
    ),
    _bad(
        "signer with an unknown critical extension",
        PKIX,
        "format",
        lambda: _chained(
            signer=replace(
                ISSUES["signer"],
                extra=x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"),
            )
        ),
    ),
)


def _debug_chain() -> str:
    name = L3 + " Debug Only"
    return _chained(
        signer=replace(ISSUES["signer"], issuer=name), l3=replace(ISSUES["l3"], subject=name)
    )


_CONTENT_CASES = (
    _bad("another root element", SWID, "format", lambda: _renamed_root()),
    _bad("patch", SWID, "format", lambda: _resigned('patch="false"', 'patch="true"')),
    _bad(
        "supplemental",
        SWID,
        "format",
        lambda: _resigned('supplemental="false"', 'supplemental="1"'),
    ),
    _bad(
        "second payload",
        SWID,
        "format",
        lambda: _resigned("</ns0:Payload>", "</ns0:Payload><ns0:Payload/>"),
    ),
    _bad("no entries", SWID, "format", lambda: sign(document(resources=()))),
    _bad(
        "no active entry",
        SWID,
        "format",
        lambda: sign(document(resources=(resource(0, active=False),))),
    ),
    _bad(
        "65 entries",
        SWID,
        "format",
        lambda: sign(document(resources=tuple(map(resource, range(65))))),
    ),
    _bad(
        "index twice", SWID, "format", lambda: sign(document(resources=(resource(3), resource(3))))
    ),
    _bad("index 64", SWID, "format", lambda: _resigned('index="7"', 'index="64"')),
    _bad("index negative", SWID, "format", lambda: _resigned('index="7"', 'index="-7"')),
    _bad("index with a zero", SWID, "format", lambda: _resigned('index="7"', 'index="07"')),
    _bad("index in other digits", SWID, "format", lambda: _resigned('index="7"', 'index="\u0667"')),
    _bad("active in lower case", SWID, "format", lambda: _resigned('"True"', '"true"')),
    _bad(
        "no alternatives",
        SWID,
        "format",
        lambda: sign(document(resources=(resource(1, hashes=()),))),
    ),
    _bad(
        "alternative not given",
        SWID,
        "format",
        lambda: _resigned('alternatives="1"', 'alternatives="2"'),
    ),
    _bad(
        "alternative not counted",
        SWID,
        "format",
        lambda: _resigned('alternatives="3"', 'alternatives="2"'),
    ),
    _bad(
        "alternative in no namespace",
        SWID,
        "format",
        lambda: sign(document().replace("ns2:Hash", "Hash")),
    ),
    _bad("value too short", SWID, "format", lambda: _resigned(_HASHES[0], "11" * 47)),
    _bad("value is no hex", SWID, "format", lambda: _resigned(_HASHES[0], "1g" * 48)),
    _bad("value with spaces", SWID, "format", lambda: _resigned(_HASHES[0], "11" * 46 + " 11 ")),
    _bad("size unlike the value", SWID, "format", lambda: _resigned('size="48"', 'size="32"')),
    _bad(
        "unknown attribute", SWID, "format", lambda: _resigned('size="48"', 'size="48" mask="00"')
    ),
    _bad("entry of another type", SWID, "format", lambda: _resigned('"Measurement"', '"File"')),
    _bad(
        "entry with a child",
        SWID,
        "format",
        lambda: _resigned('size="48"/>', 'size="48"><a/></ns0:Resource>'),
    ),
    _bad("unknown edition", SWID, "format", lambda: sign(document(edition="NIC"))),
    _bad("version of no kind", SWID, "format", lambda: sign(document(version="1"))),
    _bad(
        "switch with a driver's version", SWID, "format", lambda: sign(document(edition="SWITCH"))
    ),
    _bad("no product", SWID, "format", lambda: sign(document(product=""))),
)


def _renamed_root() -> str:
    renamed = document().replace("SoftwareIdentity", "OtherIdentity")
    return sign(renamed, Signing(before="</OtherIdentity>"))


CASES = (*GOOD_CASES, *_XML_CASES, *_SIGNATURE_CASES, *_CHAIN_CASES, *_CONTENT_CASES)
