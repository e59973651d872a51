"""What an enveloped signature covers, and what hostile XML costs."""

import resource
import time
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree  # type: ignore[import-untyped]

from attestation.errors import AttestationError, MalformedEvidence
from attestation.nvidia.xmldsig import (
    MAX_DEPTH,
    MAX_DOCUMENT_BYTES,
    MAX_ELEMENTS,
    Element,
    parse_enveloped,
)
from tests.vectors.nvidia_refs.pki import ISSUES, SIGNER, Signing, chain, key, sign
from tests.vectors.nvidia_refs.rim_cases import CASES
from tests.vectors.nvidia_refs.rim_documents import GOOD

_KEY = key(SIGNER).public_key()
_MAX_SECONDS = 2.0
_MAX_GROWTH_KIB = 96 * 1024
_ROOM = MAX_DOCUMENT_BYTES - 100
_AT_R = Signing(before="</r>")
_BEFORE_E = Signing(before="<e/>")


def _read(document: str) -> Element:
    return parse_enveloped(document.encode(), what="test").verify(_KEY)


def _texts(element: Element) -> list[str]:
    found = [element.text]
    for child in element.children:
        found += _texts(child)
    return found


def test_certificates_come_in_their_order() -> None:
    parsed = parse_enveloped(GOOD.encode(), what="test")

    assert parsed.certificates == tuple(c.public_bytes(Encoding.DER) for c in chain())
    assert len(parsed.certificates) == len(ISSUES)


def test_what_is_read_is_what_was_signed() -> None:
    """Attribute order, quotes, empty-element form and line ends are not part of the signature."""
    signed = sign("<r b='2' a=\"1\"><e></e>\r\n<e/>x</r>", _AT_R)

    root = _read(signed)

    assert root.attributes == {"a": "1", "b": "2"}
    assert [child.name for child in root.children] == ["e", "e"]
    assert "".join(_texts(root)) == "\nx"
    assert root == _read(signed.replace("b='2' a=\"1\"", 'a="1"  b="2"').replace("<e/>", "<e></e>"))


def test_the_signature_is_not_in_what_was_signed() -> None:
    root = _read(sign("<r><e/></r>", _AT_R))

    assert [child.name for child in root.children] == ["e"]


def test_text_around_the_signature_stays() -> None:
    """The enveloped transform removes the element, not the text after it."""
    signed = sign("<r>a<e/>b</r>", _BEFORE_E)

    assert _read(signed).text == "ab"
    for before in ("a", "b", "c"):
        inside = sign("<r>a<e/>b<f/>c</r>", Signing(before=before))
        assert inside.index("</ds:Signature>") == inside.index(f">{before}<") - 14
        assert _read(inside).text == "abc"
    with pytest.raises(AttestationError) as caught:
        _read(signed.replace("</ds:Signature>", "</ds:Signature>c"))
    assert caught.value.code == "rim_signature"


def test_a_representation_hides_its_content() -> None:
    assert "X509" not in repr(parse_enveloped(GOOD.encode(), what="test"))
    assert len(repr(parse_enveloped(GOOD.encode(), what="test"))) < 200


_HOSTILE: dict[str, Callable[[], str]] = {
    "depth": lambda: "<a>" * (_ROOM // 7) + "</a>" * (_ROOM // 7),
    "depth never closed": lambda: "<a>" * (_ROOM // 3),
    "one level too deep": lambda: "<a>" * (MAX_DEPTH + 1) + "</a>" * (MAX_DEPTH + 1),
    "elements": lambda: "<r>" + "<a/>" * (_ROOM // 4) + "</r>",
    "one element too many": lambda: "<r>" + "<a/>" * MAX_ELEMENTS + "</r>",
    "attributes": lambda: "<r " + " ".join(f'a{i}=""' for i in range(_ROOM // 10)) + "/>",
    "attribute repeated": lambda: "<r " + 'a="" ' * (_ROOM // 5) + "/>",
    "namespaces": lambda: "<r " + " ".join(f'xmlns:a{i}="u"' for i in range(_ROOM // 17)) + "/>",
    "namespaces by level": lambda: (
        "".join(f'<r xmlns:a{i}="u">' for i in range(_ROOM // 28)) + "</r>" * (_ROOM // 28)
    ),
    "long attribute": lambda: '<r a="' + "x" * (_ROOM - 10) + '"/>',
    "long name": lambda: "<" + "x" * (_ROOM - 10) + "/>",
    "character references": lambda: "<r>" + "&#65;" * (_ROOM // 6) + "</r>",
    "entities": lambda: "<r>" + "&lt;" * (_ROOM // 5) + "</r>",
    "too long": lambda: "<r>" + " " * MAX_DOCUMENT_BYTES + "</r>",
    "NUL": lambda: "<r>\0</r>",
    "UTF-16 marks": lambda: "\ufeff\ufeff<r/>",
    "declaration twice": lambda: '<?xml version="1.0"?><?xml version="1.0"?><r/>',
    "declared entity in a comment": lambda: "<!-- <!ENTITY a 'b'> --><r/>",
    "parameter entity": lambda: (
        "<!DOCTYPE r [<!ENTITY % p SYSTEM 'http://127.0.0.1:1/x'> %p;]><r/>"
    ),
    "external DTD": lambda: "<!DOCTYPE r SYSTEM 'http://127.0.0.1:1/x'><r/>",
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_xml_is_refused_at_bounded_cost(name: str) -> None:
    document = _HOSTILE[name]().encode()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()

    with pytest.raises(AttestationError) as caught:
        parse_enveloped(document, what="test")

    assert caught.value.code in ("format", "rim_signature")
    assert time.process_time() - started < _MAX_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < _MAX_GROWTH_KIB


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp037", "utf-7"])
def test_only_utf_8_is_read(encoding: str) -> None:
    """A DTD in another encoding would pass a search for its bytes."""
    document = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE r>{GOOD}'

    for text in (document, f"\ufeff<!DOCTYPE r>{GOOD}"):
        with pytest.raises(MalformedEvidence):
            parse_enveloped(text.encode(encoding, errors="ignore"), what="test")


_OURS_ALONE = frozenset(  # stricter than the recommendation asks
    {
        "C14N 1.0",
        "C14N 1.1 with comments",
        "XPath transform",
        "nine certificates",
        "one transform",
        "transform with parameters",
        "transforms in another order",
        "signature below the payload",
        "key value beside the certificates",
    }
)


@pytest.mark.interop
def test_another_implementation_agrees() -> None:
    """What we accept it accepts; what we refuse for its signature it refuses."""
    signxml = pytest.importorskip("signxml")
    config = signxml.SignatureConfiguration(
        signature_methods=frozenset({signxml.SignatureMethod.ECDSA_SHA384}),
        digest_algorithms=frozenset({signxml.DigestAlgorithm.SHA384}),
    )
    signer = chain()[0].public_bytes(Encoding.PEM).decode()
    accepted = set()
    for case in CASES:
        try:
            signxml.XMLVerifier().verify(
                case.make().encode(), x509_cert=signer, expect_config=config
            )
        except (signxml.InvalidSignature, etree.LxmlError, ValueError, TypeError):
            continue
        accepted.add(case.change)

    assert {case.change for case in CASES if case.code is None} <= accepted
    ours = {case.change for case in CASES if case.code == "rim_signature"}
    assert ours & accepted == _OURS_ALONE
