"""The bounds of what AMD's extensions may hold, each at its very edge."""

import pytest

from attestation.errors import MalformedEvidence
from attestation.snp.product import GENOA
from attestation.snp.vcek import CSP_ID, SPLS, VekIdentity, parse_vek_identity
from attestation.x509 import parse_certificate
from tests.support.fake_snp import FakeSnp, der_integer, der_text


def _identity(tee: FakeSnp) -> VekIdentity:
    certificate = parse_certificate(tee.vek(), what="VEK", key_kinds=frozenset({"p384"}))
    return parse_vek_identity(certificate, GENOA)


def test_a_level_may_be_255() -> None:
    identity = _identity(FakeSnp(extensions={SPLS["snp"]: der_integer(255)}))

    assert identity.tcb.snp == 255


@pytest.mark.parametrize("text", [" ~", "~ ", "A"])
def test_text_is_from_space_to_tilde(text: str) -> None:
    tee = FakeSnp(kind="VLEK", extensions={CSP_ID: der_text(text)})

    assert _identity(tee).csp_id == text


@pytest.mark.parametrize("text", ["A\x1f", "\x1fA", "A\x7f", "\x7fA", "A\x80", ""])
def test_other_text_is_refused(text: str) -> None:
    value = text.encode("latin-1")
    tee = FakeSnp(kind="VLEK", extensions={CSP_ID: bytes([0x16, len(value)]) + value})

    with pytest.raises(MalformedEvidence) as caught:
        _identity(tee)
    assert caught.value.code == "format"
