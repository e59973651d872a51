"""RIMs under the test root: a good one of each kind, and one fault each with its code.

Faults of chains and contents are here, those of XML and signatures in ``rim_signature_cases.py``.
"""

from dataclasses import replace

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
from tests.vectors.nvidia_refs.rim_documents import (
    GOOD,
    HASHES,
    RimCase,
    bad,
    chained,
    document,
    resigned,
    resource,
    signed,
)
from tests.vectors.nvidia_refs.rim_signature_cases import SIGNATURE_CASES, XML, XML_CASES, XMLDSIG

PKIX = "RFC 5280 sec. 6.1"
SWID = "ISO/IEC 19770-2; TCG RIM Information Model"
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
        make=lambda: signed(before="<ns0:Payload>"),
        facts={"kind": "driver", "product": "GH100", "version": "550.90.07", "active": [1, 7]},
    ),
)


_CHAIN_CASES = (
    bad("own root", PKIX, "untrusted_root", lambda: chained(root=_OTHER_ROOT)),
    bad("root left out", PKIX, "chain", lambda: chained(root=None)),
    bad("L3 left out", PKIX, "chain", lambda: chained(l3=None)),
    bad("reversed", PKIX, "chain_order", lambda: signed(certificates=chain()[::-1])),
    bad(
        "L3 of another key",
        PKIX,
        "chain_signature",
        lambda: chained(l3=replace(ISSUES["l3"], key_name="mine")),
    ),
    bad(
        "signer expired",
        PKIX,
        "certificate_time",
        lambda: chained(signer=replace(ISSUES["signer"], not_after=AT - DAY)),
    ),
    bad(
        "signer of the future",
        PKIX,
        "certificate_time",
        lambda: chained(signer=replace(ISSUES["signer"], not_before=AT + DAY)),
    ),
    bad(
        "L3 expired",
        PKIX,
        "certificate_time",
        lambda: chained(l3=replace(ISSUES["l3"], not_after=AT - DAY)),
    ),
    bad(
        "signer in another role",
        PKIX,
        "signer_role",
        lambda: chained(signer=replace(ISSUES["signer"], subject="GH100 Leaf", key_name=SIGNER)),
    ),
    bad("debug L3", PKIX, "signer_role", lambda: _debug_chain()),
    bad(
        "signer is a CA",
        PKIX,
        "chain",
        lambda: chained(signer=replace(ISSUES["signer"], path_length=0)),
    ),
    bad("L3 is no CA", PKIX, "chain", lambda: chained(l3=replace(ISSUES["l3"], path_length=None))),
    bad(
        "signer on P-256",
        PKIX,
        "bad_key",
        lambda: chained(signer=replace(ISSUES["signer"], curve=ec.SECP256R1())),
    ),
    bad(
        "signer with an unknown critical extension",
        PKIX,
        "format",
        lambda: chained(
            signer=replace(
                ISSUES["signer"],
                extra=x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"),
            )
        ),
    ),
)


def _debug_chain() -> str:
    name = L3 + " Debug Only"
    return chained(
        signer=replace(ISSUES["signer"], issuer=name), l3=replace(ISSUES["l3"], subject=name)
    )


_CONTENT_CASES = (
    bad("another root element", SWID, "format", lambda: _renamed_root()),
    bad("patch", SWID, "format", lambda: resigned('patch="false"', 'patch="true"')),
    bad(
        "supplemental",
        SWID,
        "format",
        lambda: resigned('supplemental="false"', 'supplemental="1"'),
    ),
    bad(
        "second payload",
        SWID,
        "format",
        lambda: resigned("</ns0:Payload>", "</ns0:Payload><ns0:Payload/>"),
    ),
    bad("no entries", SWID, "format", lambda: sign(document(resources=()))),
    bad(
        "no active entry",
        SWID,
        "format",
        lambda: sign(document(resources=(resource(0, active=False),))),
    ),
    bad(
        "65 entries",
        SWID,
        "format",
        lambda: sign(document(resources=tuple(map(resource, range(65))))),
    ),
    bad(
        "index twice", SWID, "format", lambda: sign(document(resources=(resource(3), resource(3))))
    ),
    bad("index 64", SWID, "format", lambda: resigned('index="7"', 'index="64"')),
    bad("index negative", SWID, "format", lambda: resigned('index="7"', 'index="-7"')),
    bad("index with a zero", SWID, "format", lambda: resigned('index="7"', 'index="07"')),
    bad("index in other digits", SWID, "format", lambda: resigned('index="7"', 'index="\u0667"')),
    bad("active in lower case", SWID, "format", lambda: resigned('"True"', '"true"')),
    bad(
        "no alternatives",
        SWID,
        "format",
        lambda: sign(document(resources=(resource(1, hashes=()),))),
    ),
    bad(
        "alternative not given",
        SWID,
        "format",
        lambda: resigned('alternatives="1"', 'alternatives="2"'),
    ),
    bad(
        "alternative not counted",
        SWID,
        "format",
        lambda: resigned('alternatives="3"', 'alternatives="2"'),
    ),
    bad(
        "alternative in no namespace",
        SWID,
        "format",
        lambda: sign(document().replace("ns2:Hash", "Hash")),
    ),
    bad("value too short", SWID, "format", lambda: resigned(HASHES[0], "11" * 47)),
    bad("value is no hex", SWID, "format", lambda: resigned(HASHES[0], "1g" * 48)),
    bad("value with spaces", SWID, "format", lambda: resigned(HASHES[0], "11" * 46 + " 11 ")),
    bad("size unlike the value", SWID, "format", lambda: resigned('size="48"', 'size="32"')),
    bad("unknown attribute", SWID, "format", lambda: resigned('size="48"', 'size="48" mask="00"')),
    bad("entry of another type", SWID, "format", lambda: resigned('"Measurement"', '"File"')),
    bad(
        "entry with a child",
        SWID,
        "format",
        lambda: resigned('size="48"/>', 'size="48"><a/></ns0:Resource>'),
    ),
    bad("unknown edition", SWID, "format", lambda: sign(document(edition="NIC"))),
    bad("version of no kind", SWID, "format", lambda: sign(document(version="1"))),
    bad("switch with a driver's version", SWID, "format", lambda: sign(document(edition="SWITCH"))),
    bad("no product", SWID, "format", lambda: sign(document(product=""))),
)


def _renamed_root() -> str:
    renamed = document().replace("SoftwareIdentity", "OtherIdentity")
    return sign(renamed, Signing(before="</OtherIdentity>"))


CASES = (*GOOD_CASES, *XML_CASES, *SIGNATURE_CASES, *_CHAIN_CASES, *_CONTENT_CASES)
