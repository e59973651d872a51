"""Each rule lets good claims pass and names what it refuses."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import PolicyViolation
from attestation.fake import FakeTee
from attestation.rules import Rule
from attestation.tdx.collateral import TcbStatus
from attestation.tdx.quote import EnclaveReport, TdExtension, TdReport, parse_quote
from attestation.tdx.rules import (
    ALLOWABLE_STATUSES,
    DebugOff,
    MeasurementsExpected,
    NoServiceTd,
    TcbStatusAllowed,
    TdAttributesSound,
    TeeTcbFloor,
    measurements,
)
from attestation.tdx.verifier import TdxClaims, TdxVerifier
from tests.attestation.samples import AT

_QUOTE, _COLLATERAL = FakeTee().attest(bytes(64), at=AT)
_GOOD = TdxVerifier(anchors=load_anchors()).verify(_QUOTE, _COLLATERAL, at=AT, log=CheckLog())
_QE_REPORT = parse_quote(_QUOTE).qe_report
_ALLOWED = TcbStatusAllowed(statuses=frozenset({"UpToDate"}), advisories=frozenset())


def _td(**changes: bytes | TdExtension | None) -> TdxClaims:
    assert isinstance(_GOOD.report, TdReport)
    return replace(_GOOD, report=replace(_GOOD.report, **changes))  # type: ignore[arg-type]


def _td15_ex(**changes: bytes) -> TdxClaims:
    """A body whose service TD hashes are zero, but for ``changes``."""
    extension = TdExtension(
        vm_id=1,
        td_id=b"\1" * 32,
        device_info_hash=b"\1" * 48,
        init_service_td_hash=bytes(48),
        init_service_td_attributes=bytes(8),
        init_cpu_svn=b"\1" * 16,
        init_tee_tcb_svn=b"\1" * 16,
        init_fmspc=b"\1" * 12,
        current_service_td_hash=bytes(48),
        current_service_td_attributes=bytes(8),
    )
    extension = replace(extension, **changes)  # type: ignore[arg-type]
    return _td(mr_service_td=bytes(48), extension=extension)


def _enclave(**changes: bytes) -> TdxClaims:
    report: EnclaveReport = replace(_QE_REPORT, **changes)  # type: ignore[arg-type]
    return replace(_GOOD, tee="sgx", report=report)


def _status(status: Any, *advisories: str) -> TdxClaims:
    return replace(_GOOD, tcb=replace(_GOOD.tcb, status=status, advisories=advisories))


@pytest.mark.parametrize(
    ("rule", "claims"),
    [
        (DebugOff(), _GOOD),
        (DebugOff(), _enclave()),
        (TdAttributesSound(is_septve_disable_required=True), _GOOD),
        (TdAttributesSound(is_septve_disable_required=False), _td(td_attributes=bytes(8))),
        (TdAttributesSound(is_septve_disable_required=True), _enclave()),
        (NoServiceTd(), _GOOD),
        (NoServiceTd(), _enclave()),
        (NoServiceTd(), _td(mr_service_td=bytes(48), td_attributes=bytes(3) + b"\x30" + bytes(4))),
        (NoServiceTd(), _td15_ex()),
        (_ALLOWED, _status("UpToDate", "INTEL-SA-00001")),
    ],
)
def test_good_claims_pass(rule: Rule[TdxClaims], claims: TdxClaims) -> None:
    rule.require(claims)


@pytest.mark.parametrize(
    ("rule", "claims", "code"),
    [
        (DebugOff(), _td(td_attributes=b"\1" + bytes(7)), "debug_enabled"),
        (DebugOff(), _enclave(attributes=b"\3" + bytes(15)), "debug_enabled"),
        (
            TdAttributesSound(is_septve_disable_required=False),
            _td(td_attributes=b"\2" + bytes(7)),
            "td_attributes",
        ),
        (
            TdAttributesSound(is_septve_disable_required=False),
            _td(xfam=b"\1" + bytes(7)),
            "td_attributes",
        ),
        (NoServiceTd(), _td(mr_service_td=bytes(47) + b"\1"), "service_td_not_zero"),
        (NoServiceTd(), _td(td_attributes=bytes(3) + b"\x30" + bytes(4)), "td_attributes"),
        (
            NoServiceTd(),
            _td15_ex(init_service_td_hash=b"\1" + bytes(47)),
            "service_td_not_zero",
        ),
        (
            NoServiceTd(),
            _td15_ex(current_service_td_hash=bytes(47) + b"\1"),
            "service_td_not_zero",
        ),
        (_ALLOWED, _status("OutOfDate"), "tcb_status"),
        (_ALLOWED, _status("TDRelaunchAdvised"), "tcb_status"),
        # not even a rule built by hand can let a revoked platform in
        (
            TcbStatusAllowed(statuses=frozenset({"Revoked"}), advisories=frozenset()),
            _status("Revoked"),
            "tcb_status",
        ),
        (
            MeasurementsExpected(values=(("mrtd", frozenset({"00" * 48})),)),
            _GOOD,
            "measurement_mismatch",
        ),
        # a register that this kind of TEE does not have
        (
            MeasurementsExpected(values=(("mrtd", frozenset({"00" * 48})),)),
            _enclave(),
            "measurement_mismatch",
        ),
    ],
)
def test_bad_claims_are_refused(rule: Rule[TdxClaims], claims: TdxClaims, code: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        rule.require(claims)

    assert caught.value.code == code


def test_every_status_but_revoked_may_be_allowed() -> None:
    assert set(get_args(TcbStatus)) - ALLOWABLE_STATUSES == {"Revoked"}
    assert len(ALLOWABLE_STATUSES) == 8


@pytest.mark.parametrize(
    "status", ["TDRelaunchAdvised", "TDRelaunchAdvisedConfigurationNeeded", "OutOfDate"]
)
def test_a_named_status_passes_with_its_advisories_alone(status: str) -> None:
    rule = TcbStatusAllowed(statuses=frozenset({status}), advisories=frozenset({"INTEL-SA-00001"}))

    rule.require(_status(status, "INTEL-SA-00001"))
    with pytest.raises(PolicyViolation, match="INTEL-SA-00002"):
        rule.require(_status(status, "INTEL-SA-00001", "INTEL-SA-00002"))


def test_measurements_have_the_names_that_policies_use() -> None:
    assert set(measurements(_GOOD)) == {"mrtd", "mrseam", "rtmr0", "rtmr1", "rtmr2", "rtmr3"}
    assert set(measurements(_enclave())) == {"mrenclave", "mrsigner"}


def test_the_tcb_floor_compares_each_component() -> None:
    """One component may be above its floor while another is below."""
    svn = bytes([3, 1, 9]) + bytes(13)
    good, bad = bytes([3, 1, 2]) + bytes(13), bytes([1, 2, 0]) + bytes(13)

    TeeTcbFloor(minimum=good).require(_td(tee_tcb_svn=svn))
    TeeTcbFloor(minimum=bad).require(_enclave())
    with pytest.raises(PolicyViolation, match=r"\[1\]") as caught:
        TeeTcbFloor(minimum=bad).require(_td(tee_tcb_svn=svn))

    assert caught.value.code == "tcb_floor"
