"""What the shipped policies must reject, each for its own reason, and that they do."""

from dataclasses import replace

import pytest

from attestation.anchors import TrustAnchors
from attestation.fake import FakeTee
from attestation.fake.platform import FakePlatform
from attestation.model import EvidenceBundle
from attestation.policy import AppraisalPolicy, load_policy
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import MILAN
from attestation.tdx.rules import PlatformAllowed
from tests.attestation import samples, sessions
from tests.attestation.cases import DAY, on_platform
from tests.attestation.samples import AT, failures
from tests.attestation.sessions import bundle, judge_bundle
from tests.support import fake_snp

_PRODUCTION = load_policy("production")
_DEVELOPMENT = load_policy("development")


def _trusting_fakes(policy: AppraisalPolicy) -> AppraisalPolicy:
    """The policy's own rules, so that it is they that reject and not the root."""
    return replace(policy, anchor_kinds=frozenset({"vendor", "fake"}))


def _snp(machine: fake_snp.FakeSnp, crl: bytes | None, **changes: object) -> EvidenceBundle:
    sent = bundle(tee="snp")
    wanted = sent.quote[0x50:0x90]
    return replace(
        sent,
        quote=machine.report(**{"report_data": wanted, **changes}),  # type: ignore[arg-type]
        collateral=SnpEndorsements(vek=machine.vek(), chain=machine.chain(), crl=crl),
    )


@pytest.mark.parametrize("policy", [_PRODUCTION, _DEVELOPMENT], ids=["production", "development"])
@pytest.mark.parametrize(
    ("platform", "code"),
    [
        ({"tcb_status": "OutOfDate"}, "tcb_status"),
        ({"tcb_status": "SWHardeningNeeded"}, "tcb_status"),
        ({"tcb_status": "ConfigurationNeeded"}, "tcb_status"),
        ({"tcb_status": "Revoked"}, "tcb_status"),
        ({"td_attributes": b"\x01\0\0\x10" + bytes(4)}, "debug_enabled"),
        ({"td_attributes": bytes(8)}, "td_attributes"),
    ],
)
def test_tdx(policy: AppraisalPolicy, platform: dict[str, object], code: str) -> None:
    result = samples.judge(on_platform(**platform), policy=_trusting_fakes(policy))

    assert result.code == code
    assert not result.is_accepted


def test_production_takes_no_simulated_machine() -> None:
    assert samples.judge(samples.evidence(), policy=_PRODUCTION).code == "untrusted_root"


@pytest.mark.parametrize("policy", [_PRODUCTION, _DEVELOPMENT], ids=["production", "development"])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"policy": 0x12_0137 | 1 << 19}, "debug_enabled"),
        ({"policy": 0x12_0137 | 1 << 18}, "guest_policy"),
        ({"platform_info": 0x04}, "platform_info"),  # no alias check: BadRAM
        ({"vmpl": 1}, "vmpl"),
        ({"committed_tcb": bytes([10, 1, 0, 0, 0, 0, 22, 84])}, "tcb_floor"),
    ],
)
def test_snp(policy: AppraisalPolicy, changes: dict[str, object], code: str | None) -> None:
    machine = fake_snp.FakeSnp()
    # the fake's own signing CA is in no list of AMD's
    rules = tuple(rule for rule in policy.rules["snp"] if rule.name != "signing_ca")
    own = replace(policy, rules={**policy.rules, "snp": rules})

    assert judge_bundle(_snp(machine, machine.crl(), **changes), policy=own).code == code


def test_snp_needs_a_crl_and_a_listed_ca() -> None:
    machine = fake_snp.FakeSnp()

    with_crl = judge_bundle(_snp(machine, machine.crl()), policy=_PRODUCTION)
    without = judge_bundle(_snp(machine, None), policy=_PRODUCTION)

    assert failures(with_crl) == ["chain"]
    assert failures(without) == ["crl_missing", "chain"]


def test_milan_is_refused_in_production_and_a_warning_elsewhere() -> None:
    machine = fake_snp.FakeSnp(product=MILAN)
    anchors = TrustAnchors(
        anchors=tuple(
            replace(anchor, kind="vendor") for anchor in fake_snp.anchors(machine).anchors
        )
    )
    sent = _snp(machine, machine.crl())

    refused = judge_bundle(sent, policy=_PRODUCTION, anchors=anchors)
    accepted = judge_bundle(sent, anchors=anchors)

    assert "product_refused" in failures(refused)
    assert (accepted.tier, accepted.is_accepted) == ("warning", True)


def test_revoked_rejects_whatever_the_policy_names() -> None:
    result = samples.judge(on_platform(tcb_status="Revoked"), policy=sessions.relaxed())

    assert (result.tier, result.code) == ("contraindicated", "tcb_status")


def test_old_collateral_rejects_although_it_has_not_ended() -> None:
    platform = FakePlatform()
    issued, end = AT - 32 * DAY, AT + DAY
    changed = samples.with_collateral(
        samples.evidence(),
        samples.resign_tcb_info(FakeTee(), platform.tcb_info(issued, end)),
    )

    assert failures(samples.judge(changed)) == ["evidence_age"]


@pytest.mark.parametrize("ppid", ["00" * 16, None])
def test_a_list_of_platforms_admits_those_alone(ppid: str | None) -> None:
    own = str(samples.judge(samples.evidence()).claims["ppid"])
    rule = PlatformAllowed(allowed=frozenset({ppid or own}))
    rules = {**_DEVELOPMENT.rules, "tdx": (*_DEVELOPMENT.rules["tdx"], rule)}
    listed = replace(_DEVELOPMENT, rules=rules)

    result = samples.judge(samples.evidence(), policy=listed)

    assert failures(result) == ([] if ppid is None else ["platform_not_allowed"])
