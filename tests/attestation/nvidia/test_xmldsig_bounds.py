"""The bounds of signed XML from both sides, and what is said of each fault."""

import re
from dataclasses import replace
from typing import Any

import pytest
from lxml import etree  # type: ignore[import-untyped]

from attestation.errors import AttestationError
from attestation.nvidia import xmldsig
from attestation.nvidia.xmldsig import parse_enveloped
from tests.vectors.nvidia_refs.pki import SIGNER, Signing, chain, key, sign
from tests.vectors.nvidia_refs.rim_documents import GOOD

_KEY = key(SIGNER).public_key()
_AT_R = Signing(before="</r>")


def _problem(document: str) -> str | None:
    """Code and message of the refusal, None when it is read."""
    try:
        parse_enveloped(document.encode(), what="test").verify(_KEY)
    except AttestationError as err:
        return f"{err.code}: {err}"
    return None


def _changed(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


def test_the_longest_document() -> None:
    room = 256 * 1024 - len(sign("<r>x</r>", _AT_R).encode())
    assert _problem(sign(f"<r>x{'y' * room}</r>", _AT_R)) is None
    too_long = sign(f"<r>x{'y' * (room + 1)}</r>", _AT_R)
    assert "262145 bytes, at most 262144" in str(_problem(too_long))


def test_the_deepest_document() -> None:
    assert _problem(sign("<r>" + "<e>" * 15 + "</e>" * 15 + "</r>", _AT_R)) is None
    too_deep = "<r>" + "<e>" * 16 + "</e>" * 16 + "</r>"
    assert "too deep" in str(_problem(too_deep))


def test_the_most_elements() -> None:
    of_signature = sum(1 for _ in etree.fromstring(sign("<r></r>", _AT_R)).iter()) - 1
    most = 4096 - 1 - of_signature
    assert _problem(sign("<r>" + "<e/>" * most + "</r>", _AT_R)) is None
    assert "too many elements" in str(_problem(sign("<r>" + "<e/>" * (most + 1) + "</r>", _AT_R)))


@pytest.mark.parametrize(
    ("form", "most"),
    [('a{0}="x"', 64), ('xmlns:n{0}="urn:u"', 32)],
    ids=["attributes", "namespaces"],
)
def test_the_most_of_one_element(form: str, most: int) -> None:
    def document(count: int) -> str:
        return f"<r><e {' '.join(form.format(i) for i in range(count))}/></r>"

    assert _problem(sign(document(most), _AT_R)) is None
    assert "too many attributes" in str(_problem(document(most + 1)))


@pytest.mark.parametrize(("count", "problem"), [(0, "0 cert"), (1, ""), (8, ""), (9, "9 cert")])
def test_the_fewest_and_most_certificates(count: int, problem: str) -> None:
    how = replace(_AT_R, certificates=(chain()[0],) * count)
    document = sign("<r></r>", how)
    if problem:
        assert f"{problem}ificates, at most 8" in str(_problem(document))
    else:
        assert len(parse_enveloped(document.encode(), what="test").certificates) == count


def test_what_is_no_element_is_refused_wherever_it_comes_from() -> None:
    """The text was searched for it before; a parser of another mind would find it here."""
    root: Any = etree.fromstring("<r><e/><!-- comment --></r>")
    with pytest.raises(AttestationError, match="more than elements and text") as caught:
        xmldsig._require_bounded(root, "test")
    assert caught.value.code == "format"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (sign("<r></r>", replace(_AT_R, key_name="another")), "the signature does not hold"),
        (_changed("550.90.07", "550.90.08"), "the content is not what was signed"),
        (
            _changed("<ds:KeyInfo>", "<ds:Object></ds:Object><ds:KeyInfo>"),
            "the signature is not SignedInfo, SignatureValue and KeyInfo",
        ),
        (
            _changed("<ds:X509Certificate>", "<ds:X509Certificate>*"),
            "X509Certificate is not base64",
        ),
        (
            _changed("<ds:SignatureValue>", '<ds:SignatureValue Id="s">'),
            "SignatureValue is not plain base64",
        ),
        (
            _changed("<ds:X509Certificate>", "<ds:X509Certificate><e/>"),
            "X509Certificate is not plain base64",
        ),
        (
            sign("<r></r>", _AT_R).replace("<ds:SignatureValue>", "<ds:SignatureValue>AAAA"),
            "SignatureValue has 99 bytes, want 96",
        ),
        ("<r></r>", "0 signatures, want one directly inside the root"),
    ],
)
def test_the_fault_is_named(document: str, problem: str) -> None:
    assert _problem(document) == f"rim_signature: test: {problem}"


def test_base64_has_one_spelling() -> None:
    """The last character before the padding may hold bits that mean nothing."""
    plain, other = (
        re.sub("(?<=<ds:X509Certificate>)[^<]*", text, GOOD, count=1) for text in ("QQ==", "QR==")
    )
    assert parse_enveloped(plain.encode(), what="test").certificates[0] == b"A"
    assert "X509Certificate is not plain base64" in str(_problem(other))


@pytest.mark.parametrize("name", ["KeyInfo", "X509Data"])
def test_a_long_name_is_cut(name: str) -> None:
    """Of what a stranger wrote, no more than 64 characters come back."""
    long = "x" * 65
    element = xmldsig.Element(name=f"{{urn}}{long}", attributes={}, text="", children=())
    assert xmldsig._local(element) == "x" * 64
    assert xmldsig._local(replace(element, name=f"{{urn}}{name}")) == name
    assert xmldsig._local(replace(element, name=name)) == name
