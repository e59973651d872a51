"""GPU rules over several devices at once, and at the edges of what a policy may ask."""

from dataclasses import replace
from datetime import timedelta

import pytest

from attestation.errors import AttestationError
from attestation.nvidia.rules import (
    MAX_OCSP_AGE_S,
    MAX_OCSP_GRACE_S,
    ArchitectureAllowed,
    FirmwareNamed,
    MeasurementsMatched,
    RevocationChecked,
)
from attestation.nvidia.topology import MAX_DEVICES, GpuSystem, assemble
from attestation.nvidia.verifier import GpuClaims
from attestation.rules import Rule
from tests.attestation.nvidia.claims import claims, gpu_rims, ocsp_answers
from tests.attestation.nvidia.device import AT, blackwell
from tests.attestation.nvidia.test_rules import POLICY, _edited, _parse


def _good(number: int) -> GpuClaims:
    device = blackwell(number)
    return claims(device, rims=gpu_rims(device), answers=ocsp_answers(device))


def _code(rule: Rule[GpuSystem], *devices: GpuClaims) -> str | None:
    try:
        rule.require(assemble(devices))
    except AttestationError as err:
        return err.code
    return None


def test_one_device_that_lacks_something_is_enough() -> None:
    first, second = _good(0), _good(1)
    nameless = replace(
        second,
        report=replace(second.report, opaque=replace(second.report.opaque, fwid=None)),
    )
    unmatched = replace(second, measurements=None)
    unanswered = replace(second, revocation=None)
    revocation = RevocationChecked(max_age=timedelta(hours=2))

    for rule in (FirmwareNamed(), MeasurementsMatched(), revocation):
        assert _code(rule, first, second) is None
    for devices in ((first, nameless), (nameless, first)):
        assert _code(FirmwareNamed(), *devices) == "claims"
    for devices in ((first, unmatched), (unmatched, first)):
        assert _code(MeasurementsMatched(), *devices) == "endorsement_missing"
    for devices in ((first, unanswered), (unanswered, first)):
        assert _code(revocation, *devices) == "crl_missing"


def test_revocation_is_good_until_the_oldest_answer_is_too_old() -> None:
    first, second = _good(0), _good(1)
    assert second.revocation is not None
    oldest = min(answer.this_update for answer in second.revocation) - timedelta(minutes=7)
    older = replace(second.revocation[0], this_update=oldest)
    system = assemble([first, replace(second, revocation=(*second.revocation[1:], older))])
    maximum = timedelta(hours=2)

    end = RevocationChecked(max_age=maximum).end(system)

    assert timedelta(0) <= end - (oldest + maximum) <= timedelta(seconds=1)


def test_a_late_answer_ends_with_its_grace_and_a_current_one_with_its_age() -> None:
    device, hour = blackwell(0), timedelta(hours=1)
    late, current = (
        claims(device, answers=ocsp_answers(device, next_update=AT + end), ocsp_grace=hour)
        for end in (-timedelta(minutes=10), hour)
    )
    rule = RevocationChecked(max_age=2 * hour, grace=hour)

    assert rule.end(assemble([late])) == AT + timedelta(minutes=50)
    assert rule.end(assemble([current])) == AT + hour
    assert current.revocation is not None
    assert late.revocation is not None
    both = replace(late, revocation=(*late.revocation[:2], current.revocation[2]))
    assert rule.end(assemble([both])) == AT + timedelta(minutes=50)
    shorter = RevocationChecked(max_age=2 * hour, grace=timedelta(minutes=30))
    assert shorter.end(assemble([late])) == AT + timedelta(minutes=20)


@pytest.mark.parametrize("grace_s", [0, MAX_OCSP_GRACE_S])
def test_a_grace_is_read_and_absent_it_is_none(grace_s: int) -> None:
    text = f"ocsp_grace_s = {grace_s}\nmax_ocsp_age_s = 7200"
    said, _ = _parse(_edited("max_ocsp_age_s = 7200", text))
    unsaid, _ = _parse(POLICY)

    assert _grace(said) == timedelta(seconds=grace_s)
    assert _grace(unsaid) == timedelta(0)
    assert MAX_OCSP_GRACE_S == 14 * 24 * 3600


def test_a_grace_is_a_concession() -> None:
    hour = timedelta(hours=1)

    assert RevocationChecked(max_age=hour).conceded() == ()
    assert RevocationChecked(max_age=hour, grace=hour).conceded() == (
        "an OCSP answer that ended less than 3600 s ago",
    )


def _grace(rules: tuple[Rule[GpuSystem], ...]) -> timedelta:
    (found,) = (rule.grace for rule in rules if isinstance(rule, RevocationChecked))
    return found


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("max_ocsp_age_s = 7200", f"max_ocsp_age_s = {MAX_OCSP_AGE_S}", None),
        (
            "max_ocsp_age_s = 7200",
            f"max_ocsp_age_s = {MAX_OCSP_AGE_S + 1}",
            f"nvidia.max_ocsp_age_s: want at most {MAX_OCSP_AGE_S}, NVIDIA's own validity",
        ),
        ("max_count = 8", f"max_count = {MAX_DEVICES}", None),
        (
            "max_count = 8",
            f"max_count = {MAX_DEVICES + 1}",
            f"nvidia.max_count: want a number of min_count to {MAX_DEVICES}",
        ),
        (
            "min_count = 1",
            "min_count = 9",
            f"nvidia.max_count: want a number of min_count to {MAX_DEVICES}",
        ),
    ],
)
def test_numbers_at_their_edges(old: str, new: str, problem: str | None) -> None:
    _, problems = _parse(_edited(old, new))

    assert problems == ([] if problem is None else [problem])


def test_a_floor_that_is_missing_is_told_once() -> None:
    _, problems = _parse(_edited('min_driver = "550.90.07"\n', ""))

    assert problems == ["nvidia.min_driver: missing"]


def test_what_is_allowed_is_listed_in_order() -> None:
    with pytest.raises(AttestationError, match="HOPPER, LS10"):
        ArchitectureAllowed(allowed=frozenset({"LS10", "HOPPER"})).require(assemble([_good(0)]))
