"""Each thing that can be wrong with Evidence is found, by its own check and no other."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.anchors import load_anchors
from attestation.appraise import appraise_quote
from attestation.fake.pki import PCK_NAME
from attestation.fake.platform import FakePlatform, fake_digest
from attestation.policy import load_policy, parse_policy
from tests.attestation import samples
from tests.attestation.cases import (
    CASES,
    DAY,
    QE_SIGNATURE_AT,
    SIGNED_BYTES,
    TEE,
    Case,
    changed_collateral,
    on_platform,
)
from tests.attestation.samples import AT, evidence, failures, flip_bit, judge, with_collateral


def test_good_evidence_is_accepted_as_a_warning_because_it_is_simulated() -> None:
    result = judge(evidence())

    assert (result.tier, result.code, result.is_accepted) == ("warning", None, True)
    assert failures(result) == []
    assert (result.simulated, result.trust_anchor) == (True, "starshade-FAKE-tee-root")
    assert any("SIMULATED" in c.reason for c in result.checks if c.outcome == "warn")
    assert any("simulated" in gap for gap in result.not_covered)
    assert any(gap.startswith("measurements") for gap in result.not_covered)
    assert result.claims["tcb_status"] == "UpToDate"
    assert result.claims["mrtd"] == fake_digest("MRTD").hex()
    assert result.not_after == AT + timedelta(minutes=5)  # the keyset ends first


def test_production_refuses_simulated_evidence() -> None:
    result = judge(evidence(), policy="production")

    assert (result.tier, result.code) == ("contraindicated", "untrusted_root")
    assert not result.is_accepted
    assert result.not_after == AT


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.change)
def test_one_fault_fails_one_check(case: Case) -> None:
    result = judge(case.make())

    assert failures(result) == [case.code]
    assert result.code == case.code
    assert not result.is_accepted
    assert result.tier in ("contraindicated", "none")


def test_another_nonce_fails() -> None:
    result = judge(evidence(), nonce=samples.OTHER_NONCE)

    assert failures(result) == ["nonce_mismatch"]


def test_an_ended_keyset_fails() -> None:
    result = judge(evidence(), at=AT + timedelta(minutes=5))

    assert failures(result) == ["keyset_expired"]


def test_all_policy_findings_are_listed_and_the_first_gives_the_code() -> None:
    result = judge(on_platform(td_attributes=b"\1" + bytes(7), tcb_status="OutOfDate"))

    assert failures(result) == ["debug_enabled", "td_attributes", "tcb_status"]
    assert result.code == "debug_enabled"
    assert result.claims["tcb_status"] == "OutOfDate"


def _policy(**replacements: str) -> str:
    lines = {
        "statuses": 'statuses = ["UpToDate"]',
        "advisories": "advisories = []",
        "floor": "min_evaluation_data_number = 17",
        "mode": 'mode = "not_checked"',
    } | replacements
    return f"""
name = "test"
anchors = ["fake"]
tee_types = ["tdx"]
[tcb]
{lines["statuses"]}
{lines["advisories"]}
{lines["floor"]}
[td]
debug = "refused"
service_td = "refused"
septve_disable = "required"
[measurements]
{lines["mode"]}
"""


def test_a_status_the_policy_names_is_a_warning_with_its_advisories_allowed() -> None:
    text = FakePlatform(tcb_status="SWHardeningNeeded").tcb_info(AT - DAY, AT + DAY)
    text = text.replace('"SWHardeningNeeded"', '"SWHardeningNeeded","advisoryIDs":["INTEL-SA-1"]')
    text = text.replace("INTEL-SA-1", "INTEL-SA-00001")
    bundle = with_collateral(evidence(), samples.resign_tcb_info(TEE, text))
    statuses = 'statuses = ["UpToDate", "SWHardeningNeeded"]'
    allowed = _policy(statuses=statuses, advisories='advisories = ["INTEL-SA-00001"]')

    without_advisory = judge(bundle, policy=parse_policy(_policy(statuses=statuses).encode()))
    with_advisory = judge(bundle, policy=parse_policy(allowed.encode()))

    assert failures(without_advisory) == ["tcb_status"]
    assert (with_advisory.tier, with_advisory.code) == ("warning", None)
    assert with_advisory.claims["advisories"] == ("INTEL-SA-00001",)


def test_old_collateral_is_below_the_floor() -> None:
    policy = parse_policy(_policy(floor="min_evaluation_data_number = 21").encode())

    assert failures(judge(evidence(), policy=policy)) == ["tcb_evaluation_floor"]


def test_measurements_are_compared_when_the_policy_has_them() -> None:
    want, other = fake_digest("MRTD").hex(), "00" * 48
    good = parse_policy(_policy(mode=f'mode = "required"\nmrtd = ["{want}"]').encode())
    bad = parse_policy(_policy(mode=f'mode = "required"\nmrtd = ["{other}"]').encode())

    accepted, rejected = judge(evidence(), policy=good), judge(evidence(), policy=bad)

    assert accepted.is_accepted
    assert not any(gap.startswith("measurements") for gap in accepted.not_covered)
    assert failures(rejected) == ["measurement_mismatch"]


def test_a_bare_quote_says_what_was_not_judged() -> None:
    quote, collateral = TEE.attest(bytes(64), at=AT)
    policy, anchors = load_policy("development"), load_anchors()

    result = appraise_quote(quote, collateral, policy=policy, anchors=anchors, at=AT)
    stale = appraise_quote(
        quote,
        collateral,
        policy=policy,
        anchors=anchors,
        at=AT,
        expected_report_data=b"\1" + bytes(63),
    )

    assert result.is_accepted
    assert any(gap.startswith("freshness") for gap in result.not_covered)
    assert any(gap.startswith("channel") for gap in result.not_covered)
    assert ("report_data", "not_applicable") in [(c.name, c.outcome) for c in result.checks]
    assert failures(stale) == ["report_data"]


def test_the_same_question_gets_the_same_verdict_id() -> None:
    first, again = judge(evidence()), judge(evidence())
    later = judge(evidence(), at=AT + timedelta(seconds=1))

    assert first == again
    assert first.verdict_id != later.verdict_id


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 8 * SIGNED_BYTES - 1))
def test_any_flipped_bit_of_the_signed_part_rejects(bit: int) -> None:
    bundle = evidence()

    result = judge(replace(bundle, quote=flip_bit(bundle.quote, bit)))

    assert not result.is_accepted


@settings(max_examples=60, deadline=None)
@given(st.integers(8 * SIGNED_BYTES, 8 * (QE_SIGNATURE_AT + 64) - 1))
def test_any_flipped_bit_of_keys_and_signatures_rejects(bit: int) -> None:
    bundle = evidence()

    result = judge(replace(bundle, quote=flip_bit(bundle.quote, bit)))

    assert not result.is_accepted


def test_the_pck_key_signs_nothing_else() -> None:
    """TCB info signed by the PCK key is refused although the key is genuine."""
    forged = TEE.pki.sign(PCK_NAME, TEE.collateral(AT).tcb_info.encode())

    assert failures(judge(changed_collateral(tcb_info_signature=forged))) == ["tcb_info_signature"]
