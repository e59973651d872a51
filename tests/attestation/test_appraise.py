"""Each thing that can be wrong with Evidence is found, by its own check and no other."""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.anchors import TrustAnchors, load_anchors
from attestation.appraise import appraise, appraise_quote
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.fake.pki import PCK_NAME, ROOT_NAME, TCB_SIGNER_NAME, FakePki, pem
from attestation.fake.platform import FakePlatform, fake_digest
from attestation.policy import load_policy, parse_policy
from attestation.tdx.endorsements import TdxCollateral
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
        "age": "max_collateral_age_days = 31",
        "svn": 'min_tee_tcb_svn = "00000000000000000000000000000000"',
        "platforms": 'mode = "any"',
        "mode": 'mode = "not_checked"',
    } | replacements
    return f"""
name = "test"
anchors = ["fake"]
[evidence]
cpu = ["tdx"]
gpu = "refused"
nras = "refused"
[binding]
profiles = ["starshade"]
[tdx.tcb]
{lines["statuses"]}
{lines["advisories"]}
{lines["floor"]}
{lines["age"]}
{lines["svn"]}
[tdx.td]
debug = "refused"
service_td = "refused"
septve_disable = "required"
[tdx.measurements]
{lines["mode"]}
[tdx.platforms]
{lines["platforms"]}
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


def test_the_older_of_tcb_info_and_qe_identity_counts() -> None:
    text = TEE.collateral(AT).qe_identity.replace('Number":20', 'Number":16')
    bundle = with_collateral(evidence(), samples.resign_qe_identity(TEE, text))

    assert failures(judge(bundle)) == ["tcb_evaluation_floor"]


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


def test_collateral_must_be_under_the_quotes_own_root() -> None:
    """A second trusted root does not vouch for the first one's platforms."""
    other = FakePki(seed=b"another trusted root")
    chain = pem((other.tcb_signer, other.root)).decode()
    text = TEE.collateral(AT).tcb_info
    signature = other.sign(TCB_SIGNER_NAME, text.encode())
    bundle = changed_collateral(tcb_info_issuer_chain=chain, tcb_info_signature=signature)
    digest = hashlib.sha256(other.root.public_bytes(Encoding.DER)).hexdigest()
    second = replace(load_anchors().anchors[-1], name="second", sha256=digest)
    anchors = TrustAnchors(anchors=(*load_anchors().anchors, second))

    result = appraise(
        bundle, nonce=samples.NONCE, policy=load_policy("development"), anchors=anchors, at=AT
    )

    assert failures(result) == ["untrusted_root"]


def test_a_verdict_ends_with_the_first_thing_it_rests_on() -> None:
    quote, collateral = TEE.attest(bytes(64), at=AT)
    soon, later = AT + timedelta(hours=1), AT + 9 * DAY
    info = TEE.platform.tcb_info(AT - DAY, soon)
    identity = TEE.platform.qe_identity(AT - DAY, soon)
    long_lived = replace(
        samples.resign_qe_identity(TEE, TEE.platform.qe_identity(AT - DAY, later))(
            samples.resign_tcb_info(TEE, TEE.platform.tcb_info(AT - DAY, later))(collateral)
        ),
        pck_crl=TEE.pki.pck_crl(AT - DAY, later),
        root_ca_crl=TEE.pki.root_crl(AT - DAY, later),
    )
    short_signer = pem((_issue_signer(soon), TEE.pki.root)).decode()
    shortened = (
        samples.resign_tcb_info(TEE, info)(long_lived),
        samples.resign_qe_identity(TEE, identity)(long_lived),
        replace(long_lived, pck_crl=TEE.pki.pck_crl(AT - DAY, soon)),
        replace(long_lived, root_ca_crl=TEE.pki.root_crl(AT - DAY, soon)),
        replace(long_lived, tcb_info_issuer_chain=short_signer),
        replace(long_lived, qe_identity_issuer_chain=short_signer),
    )

    def not_after(changed: TdxCollateral, signed: bytes = quote) -> datetime:
        result = appraise_quote(
            signed, changed, policy=load_policy("development"), anchors=load_anchors(), at=AT
        )
        assert result.is_accepted, result.code
        return result.not_after

    assert not_after(long_lived) == later
    assert [not_after(changed) for changed in shortened] == [soon] * len(shortened)
    assert not_after(long_lived, ShortPckTee().quote(bytes(64))) == soon


def _issue_signer(not_after: datetime) -> x509.Certificate:
    return TEE.pki._issue(TCB_SIGNER_NAME, ROOT_NAME, path_length=None, not_after=not_after)


@dataclass(frozen=True)
class ShortPckTee(FakeTee):
    """Its platform certificate ends within the hour."""

    @property
    def pck(self) -> x509.Certificate:
        return self.pki.issue_pck(self.platform.sgx_extension(), not_after=AT + timedelta(hours=1))


def test_given_collateral_wins_over_the_bundles_own() -> None:
    bundle, good = changed_collateral(pck_crl=b""), evidence().collateral

    result = appraise(
        bundle,
        nonce=samples.NONCE,
        policy=load_policy("development"),
        anchors=load_anchors(),
        at=AT,
        collateral=good,
    )

    assert result.is_accepted


def test_an_event_log_that_came_along_is_said_not_to_be_replayed() -> None:
    result = judge(replace(evidence(), event_log="log"))

    assert any(gap.startswith("event_log") for gap in result.not_covered)


def test_expected_report_data_has_64_bytes() -> None:
    quote, collateral = TEE.attest(bytes(64), at=AT)

    result = appraise_quote(
        quote,
        collateral,
        policy=load_policy("development"),
        anchors=load_anchors(),
        at=AT,
        expected_report_data=bytes(32),
    )

    assert (result.tier, failures(result)) == ("none", ["nonce_length"])


_KEYS = (b"\1" * 32, b"\2" * 32)


@pytest.mark.parametrize(
    ("attested", "seen", "code"),
    [
        (_KEYS, _KEYS[0], None),
        (_KEYS, _KEYS[1], None),
        (_KEYS[:1], _KEYS[1], "channel_binding"),
        ((), _KEYS[0], "channel_binding"),
        (_KEYS, b"", "channel_binding"),
        ((), b"", "channel_binding"),
    ],
)
def test_the_key_of_the_connection_is_in_the_keyset(
    attested: tuple[bytes, ...], seen: bytes, code: str | None
) -> None:
    bundle = make_bundle(TEE, samples.NONCE, samples.keyset(tls_keys=attested), AT)

    result = judge(bundle, tls_key_sha256=seen)

    assert (result.code, result.is_accepted) == (code, code is None)
    outcomes = [check.outcome for check in result.checks if check.name == "channel"]
    assert outcomes == ["pass" if code is None else "fail"]


def test_without_a_connection_its_key_is_no_question() -> None:
    result = judge(make_bundle(TEE, samples.NONCE, samples.keyset(tls_keys=_KEYS), AT))

    assert result.is_accepted
    assert not any(check.name == "channel" for check in result.checks)
