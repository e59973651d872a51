"""RIMs that are not plain XML, or not signed as NVIDIA signs: one fault each with its code."""

from tests.vectors.nvidia_refs.pki import L3, Signing, chain, sign
from tests.vectors.nvidia_refs.rim_documents import (
    GOOD,
    HASHES,
    bad,
    document,
    edited,
    resigned,
    resource,
    signed,
)

XML = "XML 1.0"
XMLDSIG = "XML Signature 1.1"


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
    return edited(HASHES[0], "ee" * 48, 1).replace("</ds:Signature>", kept)


def _bomb() -> str:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "lol"}">' for i in range(10))
    return f"<!DOCTYPE SoftwareIdentity [{entities}]>" + edited('tagId="t"', 'tagId="&e9;"')


def _deep() -> str:
    return edited("</ns0:Payload>", "<a>" * 200 + "</a>" * 200 + "</ns0:Payload>")


def _wide() -> str:
    attributes = " ".join(f'a{i}="x"' for i in range(2000))
    return edited("<ns0:Payload>", f"<ns0:Payload {attributes}>")


def _with_signature_value(value: str) -> str:
    start = GOOD.index("<ds:SignatureValue>") + len("<ds:SignatureValue>")
    return GOOD[:start] + value + GOOD[GOOD.index("</ds:SignatureValue>") :]


_COMMENT = HASHES[0][:10] + "<!-- -->" + HASHES[0][10:]

XML_CASES = (
    bad("empty", XML, "format", lambda: ""),
    bad("cut short", XML, "format", lambda: GOOD[: len(GOOD) // 2]),
    bad("text after the end", XML, "format", lambda: GOOD + "x"),
    bad("comment in a value", XML, "format", lambda: edited(HASHES[0], _COMMENT)),
    bad("comment at the end", XML, "format", lambda: GOOD + "<!-- -->"),
    bad("instruction", XML, "format", lambda: edited("<ns0:Payload>", "<?x y?><ns0:Payload>")),
    bad("CDATA", XML, "format", lambda: edited("<ns0:Payload>", "<ns0:Payload><![CDATA[ ]]>")),
    bad("DTD", XML, "format", lambda: "<!DOCTYPE SoftwareIdentity>" + GOOD),
    bad(
        "external entity",
        XML,
        "format",
        lambda: (
            '<!DOCTYPE SoftwareIdentity [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
            + edited("</ns0:Payload>", "&e;</ns0:Payload>")
        ),
    ),
    bad("entity bomb", XML, "format", _bomb),
    bad("undeclared entity", XML, "format", lambda: edited('tagId="t"', 'tagId="&e;"')),
    bad("deep nesting", XML, "format", _deep),
    bad("many attributes", XML, "format", _wide),
    bad(
        "other encoding",
        XML,
        "format",
        lambda: '<?xml version="1.0" encoding="UTF-7"?>' + GOOD,
    ),
    bad("XML 1.1", XML, "format", lambda: '<?xml version="1.1"?>' + GOOD),
    bad(
        "xml:id, signed",
        "Canonical XML 1.1 sec. 2.4",
        "format",
        lambda: resigned('tagId="t"', 'tagId="t" xml:id="x"'),
    ),
    bad(
        "relative namespace",
        "Canonical XML 1.1 sec. 1.3",
        "format",
        lambda: edited('tagId="t"', 'tagId="t" xmlns:r="../r"'),
    ),
)

SIGNATURE_CASES = (
    bad("unsigned", XMLDSIG, "rim_signature", document),
    bad("value edited", XMLDSIG, "rim_signature", lambda: edited(HASHES[0], "ee" * 48, 1)),
    bad("deactivated", XMLDSIG, "rim_signature", lambda: edited('"True"', '"False"', 1)),
    bad("version edited", XMLDSIG, "rim_signature", lambda: edited("550.90.07", "550.90.08")),
    bad("white space added", XMLDSIG, "rim_signature", lambda: edited("<ns0:Meta", " <ns0:Meta")),
    bad(
        "text after the signature",
        XMLDSIG,
        "rim_signature",
        lambda: edited("ture></S", "ture> </S"),
    ),
    bad(
        "namespace added",
        "Canonical XML 1.1 sec. 2.3",
        "rim_signature",
        lambda: edited('tagId="t"', 'tagId="t" xmlns:z="urn:z"'),
    ),
    bad(
        "entry added",
        XMLDSIG,
        "rim_signature",
        lambda: edited("    </ns0:P", resource(9) + "</ns0:P"),
    ),
    bad(
        "payload added",
        XMLDSIG,
        "rim_signature",
        lambda: edited("<ns0:Payload>", f"<ns0:Payload>{resource(1)}</ns0:Payload><ns0:Payload>"),
    ),
    bad("wrapped in another document", XMLDSIG, "rim_signature", _in_other_root),
    bad(
        "signed content moved into the signature",
        XMLDSIG,
        "rim_signature",
        _signed_copy_in_signature,
    ),
    bad(
        "two signatures",
        XMLDSIG,
        "rim_signature",
        lambda: edited("</SoftwareIdentity>", _signature_of(GOOD) + "</SoftwareIdentity>"),
    ),
    bad(
        "signature below the payload",
        XMLDSIG,
        "rim_signature",
        lambda: signed(before="</ns0:Payload>"),
    ),
    bad(
        "signature of another document",
        XMLDSIG,
        "rim_signature",
        lambda: GOOD.replace(
            _signature_of(GOOD), _signature_of(sign(document(version="550.90.08")))
        ),
    ),
    bad(
        "signature in another namespace",
        XMLDSIG,
        "rim_signature",
        lambda: edited("http://www.w3.org/2000/09/xmldsig#", "urn:not-xmldsig#"),
    ),
    bad(
        "C14N 1.0",
        XMLDSIG,
        "rim_signature",
        lambda: signed(c14n="http://www.w3.org/TR/2001/REC-xml-c14n-20010315"),
    ),
    bad(
        "exclusive C14N",
        XMLDSIG,
        "rim_signature",
        lambda: signed(c14n="http://www.w3.org/2001/10/xml-exc-c14n#"),
    ),
    bad(
        "C14N 1.1 with comments",
        XMLDSIG,
        "rim_signature",
        lambda: signed(c14n=Signing().c14n + "#WithComments"),
    ),
    bad(
        "ECDSA-SHA256",
        XMLDSIG,
        "rim_signature",
        lambda: signed(method="http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"),
    ),
    bad(
        "HMAC",
        XMLDSIG,
        "rim_signature",
        lambda: signed(method="http://www.w3.org/2000/09/xmldsig#hmac-sha1"),
    ),
    bad(
        "SHA-256 digest",
        XMLDSIG,
        "rim_signature",
        lambda: signed(digest="http://www.w3.org/2001/04/xmlenc#sha256"),
    ),
    bad(
        "one transform",
        XMLDSIG,
        "rim_signature",
        lambda: signed(transforms=Signing().transforms[:1]),
    ),
    bad(
        "no enveloped transform",
        XMLDSIG,
        "rim_signature",
        lambda: signed(transforms=Signing().transforms[1:]),
    ),
    bad(
        "transforms in another order",
        XMLDSIG,
        "rim_signature",
        lambda: signed(transforms=Signing().transforms[::-1]),
    ),
    bad(
        "another first transform",
        XMLDSIG,
        "rim_signature",
        lambda: signed(transforms=(Signing().c14n, Signing().c14n)),
    ),
    bad(
        "another second transform",
        XMLDSIG,
        "rim_signature",
        lambda: signed(
            transforms=(*Signing().transforms[:1], "http://www.w3.org/2001/10/xml-exc-c14n#")
        ),
    ),
    bad(
        "transform repeated",
        XMLDSIG,
        "rim_signature",
        lambda: signed(transforms=(*Signing().transforms, Signing().c14n)),
    ),
    bad(
        "XPath transform",
        XMLDSIG,
        "rim_signature",
        lambda: signed(
            transforms=("http://www.w3.org/TR/1999/REC-xpath-19991116", *Signing().transforms)
        ),
    ),
    bad(
        "transform with parameters",
        XMLDSIG,
        "rim_signature",
        lambda: signed(transform_body="<ds:XPath>true()</ds:XPath>"),
    ),
    bad("URI of an element", XMLDSIG, "rim_signature", lambda: signed(uri="#t")),
    bad("URI of a file", XMLDSIG, "rim_signature", lambda: signed(uri="file:///etc/hostname")),
    bad(
        "URI of the root by XPointer", XMLDSIG, "rim_signature", lambda: signed(uri="#xpointer(/)")
    ),
    bad("no URI", XMLDSIG, "rim_signature", lambda: signed(uri=None)),
    bad(
        "second reference",
        XMLDSIG,
        "rim_signature",
        lambda: signed(reference_extra='<ds:Reference URI="#other"/>'),
    ),
    bad(
        "key value beside the certificates",
        XMLDSIG,
        "rim_signature",
        lambda: signed(key_info_extra="<ds:KeyName>k</ds:KeyName>"),
    ),
    bad(
        "text in the signature",
        XMLDSIG,
        "rim_signature",
        lambda: edited("<ds:KeyInfo>", "x<ds:KeyInfo>"),
    ),
    bad(
        "signature value cut",
        XMLDSIG,
        "rim_signature",
        lambda: _with_signature_value("AAAA"),
    ),
    bad("signature value zero", XMLDSIG, "rim_signature", lambda: _with_signature_value("A" * 128)),
    bad("signature value empty", XMLDSIG, "rim_signature", lambda: _with_signature_value("")),
    bad("no certificates", XMLDSIG, "rim_signature", lambda: signed(certificates=())),
    bad(
        "nine certificates", XMLDSIG, "rim_signature", lambda: signed(certificates=chain()[:1] * 9)
    ),
    bad("signed by another key", XMLDSIG, "rim_signature", lambda: signed(key_name=L3)),
)
