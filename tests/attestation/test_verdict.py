"""What a verdict lists by name: every check in order, every claim, and what is not covered."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from attestation.appraise import (
    appraise_quote,
    reject_unread,
    require_label,
    require_needed,
    require_profile,
)
from attestation.checks import CheckLog
from attestation.errors import AttestationError, MalformedEvidence, PolicyViolation
from attestation.fake import FakeTee
from attestation.model import AttestationResult
from attestation.policy import load_policy
from attestation.registry import bundle_kind, evidence_kind
from tests.attestation.samples import AT, Refuse, evidence, failures, judge
from tests.attestation.sessions import all_anchors, bundle, gpu_entry, judge_bundle, relaxed, token

_NO_GPU = "gpu: no GPU evidence came along, so work on a GPU would not be attested"
_EVENT_LOG = "event_log: it came along and was not replayed against the RTMRs"
_NO_KEYSET = "channel: bare Evidence names no keys, so no connection is bound to it"
_NO_FRESHNESS = "freshness: no nonce was asked for, so the Evidence may be an old one"
_REPORT_DATA = bytes(range(64))


def _judge_quote(**changes: Any) -> AttestationResult:
    quote, collateral = FakeTee().attest(_REPORT_DATA, at=AT)
    given: dict[str, Any] = {
        "policy": load_policy("development"),
        "anchors": all_anchors(),
        "at": AT,
        **changes,
    }
    return appraise_quote(quote, collateral, **given)


def _code(function: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(AttestationError) as caught:
        function(*arguments, **named)
    return caught.value.code


def test_the_checks_of_a_bundle_that_are_not_of_one_family() -> None:
    names = [check.name for check in judge(evidence()).checks if check.outcome == "pass"]

    own = ["evidence_kind", "tee_type", "evidence_label", "binding", "keyset"]
    assert [name for name in names if name in own] == own


def test_the_claims_of_a_keyset_have_these_names() -> None:
    claims = judge(evidence()).claims

    assert claims["replica"] == "worker-0"
    assert claims["mode"] == "terminate"
    assert claims["keyset_not_after"] == "2026-12-01T12:05:00Z"
    assert claims["ohttp_config_sha256"] == ("11" * 32,)
    assert claims["tls_spki_sha256"] == ()
    assert claims["weights_sha256"] == ("55" * 32,)
    assert len(str(claims["keyset_sha256"])) == 64


@pytest.mark.parametrize(
    ("has_gpu", "has_token", "is_told"),
    [(False, False, True), (True, False, False), (True, True, False)],
)
def test_a_verdict_without_gpu_evidence_says_so(
    has_gpu: bool, has_token: bool, is_told: bool
) -> None:
    sent = bundle((gpu_entry(),) if has_gpu else (), token() if has_token else None)
    result = judge_bundle(sent)

    assert result.is_accepted
    assert (_NO_GPU in result.not_covered) == is_told


def test_a_token_alone_tells_of_gpus() -> None:
    result = judge_bundle(bundle((), token()))

    assert _NO_GPU not in result.not_covered


def test_an_event_log_is_not_replayed_and_the_verdict_says_so() -> None:
    with_log = judge(replace(evidence(), event_log="[]"))

    assert _EVENT_LOG in with_log.not_covered
    assert _EVENT_LOG not in judge(evidence()).not_covered


def test_a_profile_that_the_policy_does_not_name_is_refused() -> None:
    policy = relaxed(profiles=frozenset({"tinfoil-v3", "dstack"}))
    result = judge_bundle(bundle(), policy=policy)

    assert failures(result) == ["evidence_refused"]
    with pytest.raises(PolicyViolation, match="is starshade, want dstack, tinfoil-v3"):
        require_profile(policy, "starshade")


def test_what_is_needed_is_named() -> None:
    without = judge_bundle(bundle(), policy=relaxed(gpu="required"))
    token_only = judge_bundle(bundle(), policy=relaxed(nras="required"))

    assert failures(without) == failures(token_only) == ["evidence_missing"]
    assert "requires GPU evidence and" in str(without.checks)
    assert "requires NRAS token and" in str(token_only.checks)
    assert _code(require_needed, "refused", "it", is_there=True) == "evidence_refused"
    require_needed("when_present", "it", is_there=False)
    require_needed("when_present", "it", is_there=True)


def test_a_bare_quote_is_judged_by_the_policy_and_bound_to_nothing() -> None:
    result = _judge_quote(expected_report_data=_REPORT_DATA)

    assert result.is_accepted
    assert _NO_KEYSET in result.not_covered
    assert _NO_FRESHNESS not in result.not_covered
    assert "report_data" in [check.name for check in result.checks if check.outcome == "pass"]
    assert "debug_off" in [check.name for check in result.checks if check.outcome == "pass"]


def test_a_bare_quote_without_anything_expected_is_not_fresh() -> None:
    result = _judge_quote()

    assert result.is_accepted
    assert {_NO_KEYSET, _NO_FRESHNESS} <= set(result.not_covered)
    (check,) = [check for check in result.checks if check.name == "report_data"]
    assert (check.outcome, check.reason) == ("not_applicable", "not asked for")


def test_a_bare_quote_that_the_policy_refuses() -> None:
    policy = load_policy("development")
    strict = replace(policy, rules={**policy.rules, "tdx": (Refuse(),)})

    assert _judge_quote(policy=strict).code == "claims"
    assert _judge_quote(expected_report_data=bytes(64)).code == "report_data"
    assert _judge_quote(expected_report_data=bytes(63)).code == "nonce_length"


def test_evidence_that_cannot_be_read_has_a_verdict_too() -> None:
    result = reject_unread(
        MalformedEvidence("format", "no bundle"), b"x", policy=load_policy("production"), at=AT
    )

    assert (result.tier, result.code, result.is_accepted) == ("none", "format", False)
    assert [check.name for check in result.checks] == ["evidence_format", "remaining"]


def test_a_label_names_tee_and_root() -> None:
    anchors = all_anchors()
    sent = evidence()
    kind = bundle_kind("fake-tdx")
    claims = evidence_kind("tdx").verify(
        sent.quote,
        sent.collateral,
        anchors=anchors,
        at=AT,
        log=CheckLog(),
        cache=None,
    )

    require_label(kind, claims)
    foreign = replace(claims, anchor=replace(claims.anchor, kind="foreign"))
    vendor = replace(claims, anchor=replace(claims.anchor, kind="vendor"))
    require_label(bundle_kind("tdx"), foreign)
    require_label(bundle_kind("tdx"), vendor)
    assert _code(require_label, kind, foreign) == "tee_type"
    assert _code(require_label, kind, vendor) == "tee_type"
    assert _code(require_label, bundle_kind("tdx"), claims) == "tee_type"
    assert _code(require_label, bundle_kind("snp"), vendor) == "tee_type"
