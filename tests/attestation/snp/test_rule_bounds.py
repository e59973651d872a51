"""SNP rules by name, and the numbers and words of their policy table at their edges."""

from typing import Any

import pytest

from attestation.errors import PolicyViolation
from attestation.policy_table import PolicyTable
from attestation.snp.product import GENOA, Tcb
from attestation.snp.rules import MAX_LEVEL, MAX_VMPL, MinimumTcb, ProductAllowed, parse_rules
from tests.attestation.snp.samples import POLICY, evidence, verify
from tests.support.fake_snp import LEVELS, FakeSnp

_NO_FMC = {name: level for name, level in LEVELS.items() if name != "fmc"}


def _parse(**changes: Any) -> tuple[list[str], list[str]]:
    """(names of the rules, problems)"""
    problems: list[str] = []
    rules = parse_rules(PolicyTable("snp.", POLICY | changes, problems))
    return [rule.name for rule in rules], problems


def test_a_full_table_makes_these_rules() -> None:
    names, problems = _parse(signing_cas="listed")

    assert problems == []
    assert names == [
        "product",
        "debug_off",
        "guest_policy",
        "platform_info",
        "vmpl",
        "guest_svn",
        "tcb_floor",
        "revocation_checked",
        "signing_ca",
        "platform",
        "measurements",
    ]


def test_a_crl_that_is_not_required_makes_no_rule() -> None:
    names, problems = _parse(crl="not_required")

    assert (problems, "revocation_checked" in names) == ([], False)


@pytest.mark.parametrize("level", [0, 255])
def test_a_floor_is_any_byte(level: int) -> None:
    floors = {**POLICY["min_tcb"], "Genoa": {**_NO_FMC, "snp": level}}

    assert _parse(min_tcb=floors)[1] == []
    assert MAX_LEVEL == 255


def test_a_floor_above_a_byte_is_a_problem() -> None:
    floors = {**POLICY["min_tcb"], "Genoa": {**_NO_FMC, "snp": 256}}

    assert len(_parse(min_tcb=floors)[1]) == 1


def test_vmpl_goes_to_three() -> None:
    assert MAX_VMPL == 3
    assert _parse(max_vmpl=3)[1] == []
    assert len(_parse(max_vmpl=4)[1]) == 1


def test_measurements_required_without_a_value_are_a_problem() -> None:
    assert _parse(measurements={"mode": "required"})[1] == [
        "snp.measurements.mode: required, but no register has reference values"
    ]
    values = {**POLICY["measurements"], "more": 1}
    assert _parse(measurements=values)[1] == ["snp.measurements.more: unknown key"]


@pytest.mark.parametrize("digit", ["A", "g", "X", " "])
def test_values_are_lower_case_hex(digit: str) -> None:
    assert len(_parse(chip_ids=[digit * 128])[1]) == 1
    assert _parse(chip_ids=["0123456789abcdef" * 8])[1] == []


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("reported_tcb", "REPORTED_TCB"),
        ("committed_tcb", "COMMITTED_TCB"),
        ("launch_tcb", "LAUNCH_TCB"),
    ],
)
def test_the_tcb_that_is_below_its_floor_is_named(field: str, name: str) -> None:
    tee = FakeSnp()
    floor = Tcb(**_NO_FMC)
    lower: dict[str, Any] = {field: tee.tcb(snp=LEVELS["snp"] - 1)}
    endorsing = FakeSnp(levels={**LEVELS, "snp": LEVELS["snp"] - 1}) if "rep" in field else tee
    claims = verify(evidence(endorsing, report=tee.report(**lower)))

    with pytest.raises(PolicyViolation, match=f"^{name} is "):
        MinimumTcb(floors={"Genoa": floor}).require(claims)


def test_what_is_allowed_is_listed_in_order() -> None:
    claims = verify(evidence())

    assert claims.product == GENOA
    with pytest.raises(PolicyViolation, match="Milan, Turin"):
        ProductAllowed(allowed=frozenset({"Turin", "Milan"})).require(claims)
