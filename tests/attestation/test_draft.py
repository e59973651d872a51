"""What a verdict warns of, leaves uncovered and is named, whatever Evidence it is about."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestation import checks
from attestation.anchors import TrustAnchors, load_anchors
from attestation.appraise import appraise_quote, appraise_report, reject_unread
from attestation.checks import CheckLog
from attestation.composite import _require_bound
from attestation.errors import (
    AttestationError,
    BadSignature,
    EndorsementMismatch,
    EvidenceUnavailable,
    MalformedEvidence,
    PolicyViolation,
    UnsupportedEvidence,
    UntrustedEndorsement,
)
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.fake.platform import FakePlatform
from attestation.model import AttestationResult
from attestation.policy import load_policy
from attestation.profiles import PROFILES
from attestation.snp.endorsements import SnpEndorsements
from attestation.tdx.rules import TcbStatusAllowed
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nitro.samples import AT as NITRO_AT
from tests.attestation.nitro.samples import good_document
from tests.attestation.samples import AT, Refuse
from tests.attestation.sessions import (
    FACTS,
    Peer,
    bundle,
    gpu_entry,
    judge_bundle,
    judge_session,
    relaxed,
)

_DEVELOPMENT = load_policy("development")
_REPORT_DATA = bytes(range(64))
_PHYSICAL = "physical_access: interposers on the memory bus and other attacks on the machine itself"
_SIMULATED = "hardware: there is none, the Evidence is simulated"
_FOREIGN = "vendor: the root is the caller's own, so no vendor vouches for this Evidence"
_TLS_SENT = "channel: the TLS key is the one in the document; compare it with your connection's"


def _judge(tee: FakeTee | None = None, **changes: Any) -> AttestationResult:
    quote, collateral = (tee or FakeTee()).attest(_REPORT_DATA, at=AT)
    given: dict[str, Any] = {"policy": _DEVELOPMENT, "anchors": load_anchors(), "at": AT}
    return appraise_quote(quote, collateral, **{**given, **changes})


def _vendors() -> TrustAnchors:
    """The fake root, as if a vendor stood behind it."""
    return TrustAnchors(
        anchors=tuple(replace(anchor, kind="vendor") for anchor in load_anchors().anchors)
    )


def _warnings(result: AttestationResult) -> list[str]:
    return [check.name for check in result.checks if check.outcome == "warn"]


def test_simulated_evidence_warns_and_covers_no_hardware() -> None:
    result = _judge()

    assert (result.tier, result.simulated) == ("warning", True)
    assert _warnings(result) == ["simulated"]
    assert {_PHYSICAL, _SIMULATED} <= set(result.not_covered)
    assert _FOREIGN not in result.not_covered


def test_genuine_evidence_of_a_vendor_is_affirmed_and_physical_access_stays_open() -> None:
    result = _judge(anchors=_vendors())

    assert (result.tier, result.simulated, _warnings(result)) == ("affirming", False, [])
    assert _PHYSICAL in result.not_covered
    assert not {_SIMULATED, _FOREIGN} & set(result.not_covered)


@pytest.mark.parametrize(("kinds", "code"), [({"foreign"}, None), (set(), "untrusted_root")])
def test_a_callers_own_root_warns_and_counts_only_where_the_policy_names_it(
    kinds: set[str], code: str | None
) -> None:
    tee = FakeTee(pki=FakePki(seed=b"another root"))
    root = tee.pki.root.public_bytes(Encoding.DER)
    policy = replace(_DEVELOPMENT, anchor_kinds=frozenset({"vendor", *kinds}))

    result = _judge(tee, policy=policy, anchors=load_anchors().with_foreign(root, source="test"))

    assert (result.tier, result.code, result.is_accepted) == ("warning", code, code is None)
    assert _warnings(result) == ["trust_anchor"]
    assert _FOREIGN in result.not_covered
    assert (result.not_after == AT) == (code is not None)


def test_what_a_policy_puts_up_with_is_told() -> None:
    """A status that is not the best makes a warning even under a vendor's root."""
    tee = FakeTee(platform=FakePlatform(tcb_status="SWHardeningNeeded"))
    statuses = frozenset({"UpToDate", "SWHardeningNeeded"})
    tcb_rules = [
        replace(rule, statuses=statuses) if isinstance(rule, TcbStatusAllowed) else rule
        for rule in _DEVELOPMENT.rules["tdx"]
    ]
    policy = replace(_DEVELOPMENT, rules={**_DEVELOPMENT.rules, "tdx": tuple(tcb_rules)})

    result = _judge(tee, policy=policy, anchors=_vendors())

    assert (result.tier, result.code) == ("warning", None)
    (told,) = [check for check in result.checks if check.name == "tcb_accepted"]
    assert (told.outcome, told.reason) == (
        "warn",
        "the policy accepts TCB status SWHardeningNeeded",
    )


def test_a_tee_that_the_policy_does_not_take() -> None:
    result = _judge(policy=replace(_DEVELOPMENT, cpu=frozenset({"snp", "sgx"})))

    (failed,) = [check for check in result.checks if check.outcome == "fail"]
    assert (failed.name, failed.code) == ("tee_type", "tee_type")
    assert failed.reason == "TEE is tdx, want sgx, snp"
    assert (result.tier, result.code) == ("contraindicated", "tee_type")


@pytest.mark.parametrize(
    ("err", "tier", "check"),
    [
        (MalformedEvidence("format", ""), "none", "evidence_format"),
        (UnsupportedEvidence("unsupported_tee", ""), "none", "evidence_format"),
        (EvidenceUnavailable("", reason="no_evidence"), "none", "evidence"),
        (UntrustedEndorsement("endorsement_missing", ""), "none", "endorsements"),
        (UntrustedEndorsement("crl_missing", ""), "none", "endorsements"),
        (UntrustedEndorsement("chain", ""), "contraindicated", "evidence_format"),
        (BadSignature("bad_key", ""), "contraindicated", "evidence_format"),
        (EndorsementMismatch("tee_type", ""), "contraindicated", "evidence_format"),
        (PolicyViolation("claims", ""), "contraindicated", "evidence_format"),
    ],
)
def test_nothing_to_judge_is_told_apart_from_a_bad_thing(
    err: AttestationError, tier: str, check: str
) -> None:
    result = reject_unread(err, b"x", policy=_DEVELOPMENT, at=AT)

    assert (result.tier, result.code, result.trust_anchor) == (tier, err.code, "")
    assert [(one.name, one.outcome) for one in result.checks] == [
        (check, "fail"),
        ("remaining", "not_applicable"),
    ]
    assert result.checks[1].reason == f"not reached: {err.code} came first"


def test_a_verdict_is_named_by_what_went_into_it() -> None:
    good = _judge()
    bad = reject_unread(MalformedEvidence("format", ""), b"x", policy=_DEVELOPMENT, at=AT)

    for result, tier, code in ((good, "warning", ""), (bad, "none", "format")):
        identity = "|".join(
            (result.evidence_sha256, _DEVELOPMENT.sha256, AT.isoformat(), tier, code)
        )
        assert result.verdict_id == f"v1-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def test_rules_of_devices_are_named_by_their_section_and_those_of_the_guest_are_not() -> None:
    result = judge_bundle(bundle((gpu_entry(),)))
    names = [check.name for check in result.checks]

    assert "debug_off" in names
    assert any(name.startswith("nvidia.") for name in names)
    assert not any(name.startswith("tdx.") and name != "tdx.measurements" for name in names)


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ("tdx", "any software passes in the guest"),
        ("nvidia", "any firmware and driver that NVIDIA signed passes on the GPUs"),
    ],
)
def test_a_policy_without_reference_values_says_what_passes(section: str, what: str) -> None:
    policy = relaxed()
    rules = dict.fromkeys(policy.rules, ())
    result = judge_bundle(bundle((gpu_entry(),)), policy=replace(policy, rules=rules))

    reason = "the policy holds no reference values"
    assert f"measurements: {what}: {reason}" in result.not_covered
    (check,) = [check for check in result.checks if check.name == f"{section}.measurements"]
    assert (check.outcome, check.reason) == ("not_applicable", reason)


def test_a_family_tells_its_own_gaps() -> None:
    sent = bundle(tee="snp")
    assert isinstance(sent.collateral, SnpEndorsements)
    without_crl = replace(sent, collateral=replace(sent.collateral, crl=None))
    policy = relaxed()
    unruled = replace(policy, rules=dict.fromkeys(policy.rules, ()))
    gap = "measurements: any software passes in the guest: the policy holds no reference values"

    with_crl, without = (
        judge_bundle(sent, policy=unruled),
        judge_bundle(without_crl, policy=unruled),
    )

    assert gap in with_crl.not_covered
    assert set(without.not_covered) - set(with_crl.not_covered)


def test_an_enclave_without_reference_values() -> None:
    policy = replace(
        _DEVELOPMENT,
        cpu=frozenset({"nitro"}),
        anchor_kinds=frozenset({"vendor"}),
        rules={"nitro": ()},
    )
    result = appraise_report(
        "nitro",
        good_document().to_bytes(),
        None,
        policy=policy,
        anchors=VERIFIER.anchors,
        at=NITRO_AT,
    )
    gap = "measurements: any software passes in the enclave: the policy holds no reference values"

    assert (result.code, gap in result.not_covered) == (None, True)


def test_report_data_of_another_length_binds_nothing() -> None:
    with pytest.raises(MalformedEvidence) as caught:
        _require_bound(PROFILES["near"], FACTS, bytes(32))

    assert (caught.value.code, str(caught.value)) == ("format", "REPORT_DATA: 32 bytes")


def test_the_checks_of_a_session_in_order() -> None:
    result = judge_session(Peer("tinfoil-v3").session())
    names = [check.name for check in result.checks if check.outcome == "pass"]

    own = ["evidence_kind", "evidence_label", "nonce", "channel", "gpu_evidence", "binding"]
    assert [name for name in names if name in own] == own
    assert names.index("binding") < names.index("debug_off")
    assert _TLS_SENT not in result.not_covered
    without_connection = judge_session(Peer("tinfoil-v3").session(), tls_key_sha256=None)
    assert _TLS_SENT in without_connection.not_covered


def test_a_session_is_judged_by_the_policy() -> None:
    needs_gpu = judge_session(Peer("dstack").session(), policy=relaxed(gpu="required"))
    needs_token = judge_session(Peer("dstack").session(), policy=relaxed(nras="required"))
    policy = relaxed()
    refusing = replace(policy, rules={**policy.rules, "tdx": (Refuse(),)})

    assert "requires GPU evidence and" in str(needs_gpu.checks)
    assert "requires NRAS token and" in str(needs_token.checks)
    assert judge_session(Peer("dstack").session(), policy=refusing).code == "claims"


def test_the_steps_that_are_remembered_are_few() -> None:
    """Their names hold a device's number: as many as a composite has, not as many as there are."""
    for number in range(300):
        with CheckLog(prefix=f"gpu{number}.").step("chain", "the chain holds"):
            pass
    assert checks._passed.cache_info().currsize == 256
