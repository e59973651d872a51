"""Each TDX rule at the very edge of what it takes, and each key of its policy table."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import PolicyViolation
from attestation.fake import FakeTee
from attestation.policy_table import PolicyTable
from attestation.rules import Rule
from attestation.tdx.quote import TdReport
from attestation.tdx.rules import (
    CollateralAge,
    EvaluationFloor,
    MeasurementsExpected,
    PlatformAllowed,
    TcbStatusAllowed,
    TdAttributesSound,
    TeeTcbFloor,
    measurements,
    parse_rules,
)
from attestation.tdx.verifier import TdxClaims, TdxVerifier
from tests.attestation.samples import AT

_QUOTE, _COLLATERAL = FakeTee().attest(bytes(64), at=AT)
_GOOD = TdxVerifier(anchors=load_anchors()).verify(_QUOTE, _COLLATERAL, at=AT, log=CheckLog())
_SOUND = TdAttributesSound(is_septve_disable_required=False)
_KNOWN_BITS = (0, 28, 29, 30, 31, 63)
_REGISTERS = ("mrtd", "mrseam", "rtmr0", "rtmr1", "rtmr2", "rtmr3")
_TABLE: dict[str, dict[str, Any]] = {
    "td": {"debug": "refused", "service_td": "refused", "septve_disable": "required"},
    "tcb": {
        "statuses": ["UpToDate"],
        "advisories": ["INTEL-SA-00001"],
        "min_evaluation_data_number": 17,
        "max_collateral_age_days": 31,
        "min_tee_tcb_svn": "01" * 16,
    },
    "measurements": {"mode": "required", **{name: ["00" * 48] for name in _REGISTERS}},
    "platforms": {"mode": "listed", "ppid": ["00" * 16]},
}


def _td(**changes: Any) -> TdxClaims:
    assert isinstance(_GOOD.report, TdReport)
    return replace(_GOOD, report=replace(_GOOD.report, **changes))


def _bits(*bits: int) -> bytes:
    return sum(1 << bit for bit in bits).to_bytes(8, "little")


def _passes(rule: Rule[TdxClaims], claims: TdxClaims) -> bool:
    try:
        rule.require(claims)
    except PolicyViolation:
        return False
    return True


def _parse(
    section: str = "td", drop: tuple[str, ...] = (), **changes: Any
) -> tuple[tuple[Rule[TdxClaims], ...], list[str]]:
    """(rules, problems) of the whole table with one section changed."""
    problems: list[str] = []
    table: dict[str, Any] = {**_TABLE, section: {**_TABLE[section], **changes}}
    for key in drop:
        del table[section][key]
    return parse_rules(PolicyTable("tdx.", table, problems)), problems


def test_known_td_attributes_are_these_and_no_others() -> None:
    known = [bit for bit in range(64) if _passes(_SOUND, _td(td_attributes=_bits(bit)))]

    assert tuple(known) == _KNOWN_BITS


def test_xfam_has_x87_and_sse() -> None:
    assert [bits for bits in range(8) if _passes(_SOUND, _td(xfam=bits.to_bytes(8, "little")))] == [
        3,
        7,
    ]


def test_septve_disable_is_asked_for_when_required() -> None:
    required = replace(_SOUND, is_septve_disable_required=True)

    assert _passes(required, _td(td_attributes=_bits(28)))
    assert not _passes(required, _td(td_attributes=_bits(29)))
    assert not _passes(required, _td(td_attributes=_bits(27)))


def test_floors_and_ages_are_inclusive() -> None:
    number, age = _GOOD.tcb_evaluation_data_number, AT - _GOOD.collateral_issued
    for minimum, is_good in ((number - 1, True), (number, True), (number + 1, False)):
        assert _passes(EvaluationFloor(minimum=minimum), _GOOD) == is_good
    second = timedelta(seconds=1)
    for maximum, is_good in ((age + second, True), (age, True), (age - second, False)):
        assert _passes(CollateralAge(maximum=maximum), _GOOD) == is_good
    with pytest.raises(PolicyViolation) as caught:
        CollateralAge(maximum=timedelta(0)).require(_GOOD)
    assert caught.value.code == "evidence_age"


@pytest.mark.parametrize("component", range(16))
def test_each_svn_component_has_a_floor(component: int) -> None:
    svn = bytes([5] * 16)
    higher = svn[:component] + b"\6" + svn[component + 1 :]

    assert _passes(TeeTcbFloor(minimum=svn), _td(tee_tcb_svn=svn))
    assert not _passes(TeeTcbFloor(minimum=higher), _td(tee_tcb_svn=svn))


def test_a_platform_must_be_listed() -> None:
    ppid = _GOOD.ppid.hex()

    PlatformAllowed(allowed=frozenset({ppid, "00" * 16})).require(_GOOD)
    with pytest.raises(PolicyViolation) as caught:
        PlatformAllowed(allowed=frozenset({"00" * 16})).require(_GOOD)
    assert caught.value.code == "platform_not_allowed"


@pytest.mark.parametrize("register", _REGISTERS)
def test_every_register_is_compared(register: str) -> None:
    observed = measurements(_GOOD)
    right = frozenset({observed[register], "00" * 48})

    assert _passes(MeasurementsExpected(values=((register, right),)), _GOOD)
    for name in _REGISTERS:
        wrong = right if name == register else frozenset({"00" * 48})
        values = (("mrtd", frozenset({observed["mrtd"]})), (name, wrong))
        assert _passes(MeasurementsExpected(values=values), _GOOD) == (name == register)


def test_a_full_table_makes_every_rule_with_its_values() -> None:
    rules, problems = _parse()

    assert problems == []
    assert [rule.name for rule in rules] == [
        "debug_off",
        "td_attributes",
        "service_td",
        "tcb_evaluation_floor",
        "collateral_age",
        "tcb_floor",
        "tcb_status",
        "measurements",
        "platform",
    ]
    by_name: dict[str, Any] = {rule.name: rule for rule in rules}
    assert by_name["td_attributes"].is_septve_disable_required
    assert by_name["tcb_evaluation_floor"].minimum == 17
    assert by_name["collateral_age"].maximum == timedelta(days=31)
    assert by_name["tcb_floor"].minimum == b"\1" * 16
    assert by_name["tcb_status"].statuses == {"UpToDate"}
    assert by_name["tcb_status"].advisories == {"INTEL-SA-00001"}
    assert by_name["measurements"].values == tuple(
        (name, frozenset({"00" * 48})) for name in _REGISTERS
    )
    assert by_name["platform"].allowed == {"00" * 16}


def test_what_a_policy_relaxes_makes_no_rule() -> None:
    service, problems = _parse(service_td="allowed")
    septve, more = _parse(septve_disable="not_required")

    assert problems == more == []
    assert "service_td" not in [rule.name for rule in service]
    assert not {rule.name: rule for rule in septve}["td_attributes"].is_septve_disable_required  # type: ignore[attr-defined]
    anywhere, problems = _parse("platforms", drop=("ppid",), mode="any")
    assert (problems, "platform" in [rule.name for rule in anywhere]) == ([], False)
    unchecked, problems = _parse("measurements", drop=_REGISTERS, mode="not_checked")
    assert (problems, "measurements" in [rule.name for rule in unchecked]) == ([], False)


@pytest.mark.parametrize(
    ("section", "changes", "problem"),
    [
        ("td", {"debug": "allowed"}, "tdx.td.debug: want one of refused"),
        ("td", {"more": 1}, "tdx.td.more: unknown key"),
        ("tcb", {"more": 1}, "tdx.tcb.more: unknown key"),
        ("tcb", {"statuses": ["Revoked"]}, "tdx.tcb.statuses: 'Revoked' is not a value it takes"),
        ("tcb", {"advisories": ["SA-1"]}, "tdx.tcb.advisories: 'SA-1' is not a value it takes"),
        ("tcb", {"min_evaluation_data_number": 0}, "tdx.tcb.min_evaluation_data_number: want a"),
        ("tcb", {"max_collateral_age_days": 0}, "tdx.tcb.max_collateral_age_days: want a number"),
        ("tcb", {"min_tee_tcb_svn": "01" * 15}, "tdx.tcb.min_tee_tcb_svn: want 16 bytes"),
        ("measurements", {"mode": "off"}, "tdx.measurements.mode: want one of"),
        ("measurements", {"more": 1}, "tdx.measurements.more: unknown key"),
        ("measurements", {"mode": "not_checked"}, "tdx.measurements.mrseam: unknown key"),
        ("measurements", {"mrtd": ["00" * 47]}, "tdx.measurements.mrtd: '0000"),
        ("platforms", {"mode": "any"}, "tdx.platforms.ppid: unknown key"),
        ("platforms", {"mode": "some"}, "tdx.platforms.mode: want one of any, listed"),
        ("platforms", {"ppid": ["00" * 15]}, "tdx.platforms.ppid: '0000"),
        ("platforms", {"ppid": []}, "tdx.platforms.ppid: empty"),
        ("platforms", {"more": 1}, "tdx.platforms.more: unknown key"),
    ],
)
def test_each_key_has_its_one_form(section: str, changes: dict[str, Any], problem: str) -> None:
    _, problems = _parse(section, **changes)

    assert any(told.startswith(problem) for told in problems), problems


def test_required_without_any_register_accepts_nothing() -> None:
    _, problems = _parse("measurements", drop=_REGISTERS)

    assert problems == ["tdx.measurements.mode: required, but no register has reference values"]


def test_an_unknown_section_is_a_problem() -> None:
    problems: list[str] = []
    parse_rules(PolicyTable("tdx.", {**_TABLE, "more": {}}, problems))

    assert problems == ["tdx.more: unknown key"]


@pytest.mark.parametrize(
    "status",
    [
        "SWHardeningNeeded",
        "ConfigurationNeeded",
        "ConfigurationAndSWHardeningNeeded",
        "OutOfDate",
        "OutOfDateConfigurationNeeded",
        "TDRelaunchAdvised",
        "TDRelaunchAdvisedConfigurationNeeded",
    ],
)
def test_each_lesser_status_can_be_named(status: str) -> None:
    _, problems = _parse("tcb", statuses=[status])

    assert problems == []


def test_a_policy_asks_for_at_most_ten_years_and_names_are_listed() -> None:
    assert _parse("tcb", max_collateral_age_days=3650)[1] == []
    assert len(_parse("tcb", max_collateral_age_days=3651)[1]) == 1
    rule = TcbStatusAllowed(statuses=frozenset({"OutOfDate", "Revoked"}), advisories=frozenset())
    with pytest.raises(PolicyViolation, match=r"is UpToDate, want OutOfDate, Revoked$"):
        rule.require(_GOOD)
