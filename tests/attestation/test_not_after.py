"""A verdict holds until its ``not_after`` and no longer, whichever family and whatever ends first.

Asked again with the same Evidence just before, it is the same; a second later it is a rejection.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from attestation.anchors import TrustAnchors
from attestation.appraise import appraise_report
from attestation.appraise_device import appraise_gpus, appraise_token
from attestation.fake import FakeTee
from attestation.model import AttestationResult, GpuEndorsements
from attestation.nras.rules import TokenRecent
from attestation.nvidia import rules as nvidia_rules
from attestation.policy import AppraisalPolicy
from attestation.rules import Rule
from attestation.tdx.rules import CollateralAge
from tests.attestation import sessions
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nitro.samples import good_document
from tests.attestation.nvidia.claims import ocsp_answers
from tests.attestation.nvidia.device import hopper
from tests.attestation.samples import AT, NONCE, failures
from tests.attestation.sessions import (
    all_anchors,
    bundle,
    gpu_entry,
    judge_bundle,
    judge_session,
    relaxed,
    token,
)

Judge = Callable[[datetime], AttestationResult]
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_OCSP = GpuEndorsements(rims=(), ocsp=ocsp_answers(hopper()).answers)


def _with(section: str, *rules: Rule[Any]) -> AppraisalPolicy:
    """The relaxed policy and more rules of one section."""
    policy = relaxed()
    return replace(policy, rules={**policy.rules, section: (*policy.rules[section], *rules)})


def _quote(policy: AppraisalPolicy | None = None) -> Judge:
    quote, collateral = FakeTee().attest(bytes(64), at=AT)
    return lambda at: appraise_report(
        "tdx", quote, collateral, policy=policy or relaxed(), anchors=all_anchors(), at=at
    )


def _snp() -> Judge:
    sent = bundle(tee="snp")
    return lambda at: appraise_report(
        "snp", sent.quote, sent.collateral, policy=relaxed(), anchors=all_anchors(), at=at
    )


def _nitro() -> Judge:
    document, policy = good_document().to_bytes(), relaxed()
    return lambda at: appraise_report(
        "nitro", document, None, policy=policy, anchors=VERIFIER.anchors, at=at
    )


def _gpu(policy: AppraisalPolicy | None = None, endorsements: GpuEndorsements = _OCSP) -> Judge:
    return lambda at: appraise_gpus(
        [gpu_entry(nonce=NONCE)],
        nonce=NONCE,
        policy=policy or relaxed(),
        anchors=TrustAnchors(anchors=hopper().pki.anchors.anchors),
        at=at,
        endorsements=endorsements,
    )


def _nras(policy: AppraisalPolicy | None = None) -> Judge:
    sent, keys = token(NONCE), sessions.jwks()
    return lambda at: appraise_token(sent, keys, nonce=NONCE, policy=policy or relaxed(), at=at)


def _revocation(max_age: timedelta, grace: timedelta = timedelta(0)) -> AppraisalPolicy:
    return _with("nvidia", nvidia_rules.RevocationChecked(max_age=max_age, grace=grace))


def _late(policy: AppraisalPolicy) -> Judge:
    """Its OCSP answers ended ten minutes before AT."""
    answers = ocsp_answers(hopper(), next_update=AT - timedelta(minutes=10)).answers
    return _gpu(policy, GpuEndorsements(rims=(), ocsp=answers))


_HOUR = timedelta(hours=1)
_JUDGES: dict[str, tuple[Judge, datetime]] = {
    "bundle, its keyset": (
        lambda at: judge_bundle(bundle((gpu_entry(),), token()), at=at),
        AT + timedelta(minutes=5),
    ),
    "session, its token": (
        lambda at: judge_session(sessions.Peer("near").session(nras=token(NONCE)), at=at),
        AT + timedelta(minutes=59),
    ),
    "quote, its collateral": (_quote(), datetime(2026, 12, 30, tzinfo=AT.tzinfo)),
    "quote, the age a policy takes": (
        _quote(_with("tdx", CollateralAge(maximum=timedelta(days=2)))),
        datetime(2026, 12, 2, tzinfo=AT.tzinfo),
    ),
    "SNP report, its CRL": (_snp(), datetime(2031, 1, 1, tzinfo=AT.tzinfo)),
    "Nitro document, its age": (_nitro(), AT + timedelta(seconds=298.5)),
    "GPU, its OCSP answers": (_gpu(), AT + _HOUR),
    "GPU, the age a policy takes": (
        _gpu(_revocation(timedelta(minutes=90))),
        AT + timedelta(minutes=30),
    ),
    "GPU, the grace a policy gives": (
        _late(_revocation(_HOUR, grace=_HOUR)),
        AT + timedelta(minutes=50),
    ),
    "token": (_nras(), AT + timedelta(minutes=59)),
    "token, the age a policy takes": (
        _nras(_with("nras", TokenRecent(max_age_s=600))),
        AT + timedelta(minutes=9),
    ),
}


@pytest.mark.parametrize("name", _JUDGES)
def test_a_verdict_holds_until_its_end_and_no_longer(name: str) -> None:
    judge, want = _JUDGES[name]
    first = judge(AT)
    assert failures(first) == []

    assert first.not_after == want
    before, after = judge(want - _MICROSECOND), judge(want + _SECOND)
    assert (before.is_accepted, before.tier, before.not_after) == (True, first.tier, want)
    assert not after.is_accepted
    assert after.not_after == want + _SECOND


@pytest.mark.parametrize("name", _JUDGES)
def test_no_verdict_starts_years_early(name: str) -> None:
    judge, _ = _JUDGES[name]

    assert not judge(datetime(2001, 1, 1, tzinfo=AT.tzinfo)).is_accepted
    assert not judge(datetime.min.replace(tzinfo=AT.tzinfo)).is_accepted
    assert not judge(datetime.max.replace(tzinfo=AT.tzinfo)).is_accepted


@pytest.mark.parametrize("name", _JUDGES)
def test_a_time_without_a_zone_accepts_nothing(name: str) -> None:
    judge, _ = _JUDGES[name]

    with pytest.raises(TypeError, match="offset-naive"):
        judge(AT.replace(tzinfo=None))


def test_a_verdict_on_current_answers_never_reaches_into_their_grace() -> None:
    """It ends as without a grace; the next one is the warning."""
    judge = _gpu(_revocation(2 * _HOUR, grace=_HOUR))
    first, later = judge(AT), judge(AT + _HOUR)

    assert (first.tier, first.not_after) == ("affirming", AT + _HOUR)
    assert (later.tier, later.code, later.not_after) == ("warning", None, AT + 2 * _HOUR)
    assert judge(AT + 2 * _HOUR).code == "crl_expired"


def test_a_late_answer_is_told_in_a_check_of_its_own() -> None:
    result = _late(_revocation(_HOUR, grace=_HOUR))(AT)

    (warning,) = (check for check in result.checks if check.outcome == "warn")
    assert warning.name == "gpu-0_ocsp_grace"
    assert warning.reason == ("the policy accepts an OCSP answer that ended 2026-12-01T11:50:00Z")
    assert (result.tier, result.is_accepted) == ("warning", True)
    assert result.submods["gpu-0"].claims["revocation"] == "good, but late"


def test_without_its_rule_a_policy_gives_no_grace() -> None:
    for policy in (relaxed(), _revocation(_HOUR)):
        assert _late(policy)(AT).code == "crl_expired"
