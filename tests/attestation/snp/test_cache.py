"""A cache changes how long an SNP verdict takes and nothing else, whatever it saw before."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.anchors import TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.model import Check
from attestation.snp import verifier
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.verifier import SnpClaims, SnpVerifier
from tests.attestation.snp.own_cases import CASES
from tests.attestation.snp.samples import ANCHORS, Evidence, evidence
from tests.support.fake_snp import AT

_NO_ROOT = TrustAnchors(anchors=())
_RENAMED = TrustAnchors(
    anchors=tuple(replace(anchor, kind="foreign", name="mine") for anchor in ANCHORS.anchors)
)
_DAY = timedelta(days=1)
_Outcome = tuple[SnpClaims | str, tuple[Check, ...]]


def _judge(
    given_evidence: Evidence, known: VerifiedCache | None, anchors: TrustAnchors, at: datetime
) -> _Outcome:
    """Claims or the code, and every check on the way."""
    log = CheckLog()
    endorsements = SnpEndorsements(
        vek=given_evidence.vek, chain=given_evidence.chain, crl=given_evidence.crl
    )
    try:
        claims = SnpVerifier(anchors=anchors, cache=known).verify(
            given_evidence.report, endorsements, at=at, log=log
        )
    except AttestationError as err:
        return err.code, tuple(log.checks)
    return claims, tuple(log.checks)


@cache
def _own() -> tuple[Evidence, ...]:
    return tuple(case.make() for case in CASES)


def test_every_case_twice() -> None:
    known = VerifiedCache()

    for made in _own():
        cold = _judge(made, None, ANCHORS, made.at)
        assert _judge(made, known, ANCHORS, made.at) == cold
        assert _judge(made, known, ANCHORS, made.at) == cold
    assert len(known) > 0


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(min_value=0, max_value=len(CASES) - 1),
            st.sampled_from((ANCHORS, _NO_ROOT, _RENAMED)),
            st.sampled_from((-40 * 365, -1, 0, 0, 1, 30, 40 * 365)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_history_leaves_the_verdict_as_it_is(
    steps: list[tuple[int, TrustAnchors, int]],
) -> None:
    known = VerifiedCache()
    for index, anchors, days in steps:
        made = _own()[index]
        at = made.at + days * _DAY
        assert _judge(made, known, anchors, at) == _judge(made, None, anchors, at)


def test_what_was_verified_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("verified again")

    known, good = VerifiedCache(), evidence()
    first = _judge(good, known, ANCHORS, AT)
    monkeypatch.setattr(verifier, "verify_chain", refuse)
    monkeypatch.setattr(verifier, "verify_crl", refuse)

    assert isinstance(first[0], SnpClaims)
    assert _judge(good, known, ANCHORS, AT) == first


def test_the_reports_signature_is_never_cached() -> None:
    known, good = VerifiedCache(), evidence()
    assert isinstance(_judge(good, known, ANCHORS, AT)[0], SnpClaims)
    changed = bytearray(good.report)
    changed[0x50] ^= 1  # REPORT_DATA

    again = replace(good, report=bytes(changed))

    assert _judge(again, known, ANCHORS, AT)[0] == "report_signature"
