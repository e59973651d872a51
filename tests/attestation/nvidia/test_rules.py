"""Policy on GPUs: each rule refuses with its code, and a policy says everything aloud."""

import tomllib
from dataclasses import replace
from datetime import timedelta

import pytest

from attestation.errors import AttestationError
from attestation.nvidia import opaque
from attestation.nvidia.rules import parse_rules
from attestation.nvidia.topology import GpuSystem, assemble
from attestation.policy_table import PolicyTable
from attestation.rules import Rule
from tests.attestation.nvidia.claims import claims, gpu_rims, ocsp_answers
from tests.attestation.nvidia.device import AT, FakeDevice, blackwell, board_gpu, hopper, switch

POLICY = """
architectures = ["HOPPER", "BLACKWELL"]
modes = ["spt", "mpt", "ppcie"]
devtools = "refused"
min_count = 1
max_count = 8
min_driver = "550.90.07"
fwid = "required"
measurements = "required"
ocsp = "required"
max_ocsp_age_s = 7200
[min_vbios]
hopper = "96.00.74.00.00"
blackwell = "96.00.74.00.00"
ls10 = "96.10.00.00.00"
"""


def _parse(text: str) -> tuple[tuple[Rule[GpuSystem], ...], list[str]]:
    problems: list[str] = []
    rules = parse_rules(PolicyTable("nvidia.", tomllib.loads(text), problems))
    return rules, problems


def _edited(old: str, new: str) -> str:
    assert old in POLICY
    return POLICY.replace(old, new)


def _system(device: FakeDevice, **given: object) -> GpuSystem:
    made = claims(device, rims=gpu_rims(device), answers=ocsp_answers(device))
    return assemble([replace(made, **given)])  # type: ignore[arg-type]


def _codes(system: GpuSystem, policy: str = POLICY) -> list[str]:
    """Of every rule that refuses."""
    rules, problems = _parse(policy)
    assert problems == []
    codes = []
    for rule in rules:
        try:
            rule.require(system)
        except AttestationError as err:
            codes.append(f"{rule.name}: {err.code}")
    return codes


def test_a_good_gpu_passes_every_rule() -> None:
    assert _codes(_system(hopper())) == []
    assert _codes(_system(blackwell())) == []


def test_architecture() -> None:
    policy = _edited('["HOPPER", "BLACKWELL"]', '["HOPPER"]').replace(
        'blackwell = "96.00.74.00.00"\n', ""
    )

    assert _codes(_system(blackwell()), policy)[0] == "gpu_arch: gpu_arch"
    assert _codes(_system(hopper()), policy) == []


def test_mode() -> None:
    unstated = replace(
        hopper(), items={k: v for k, v in hopper().items.items() if k != opaque.FEATURE_FLAG}
    )

    assert _codes(_system(unstated)) == ["gpu_mode: gpu_mode"]
    assert _codes(_system(unstated), _edited('["spt",', '["unstated", "spt",')) == []


def test_count() -> None:
    made = [
        claims(device, rims=gpu_rims(device), answers=ocsp_answers(device))
        for device in (blackwell(0), blackwell(1))
    ]
    two = assemble(made)

    assert _codes(two, _edited("max_count = 8", "max_count = 1")) == ["gpu_count: gpu_count"]
    assert _codes(two, _edited("min_count = 1", "min_count = 3")) == ["gpu_count: gpu_count"]
    assert _codes(two, _edited("min_count = 1", "min_count = 2")) == []


def test_firmware_id_is_a_switch_of_the_policy() -> None:
    old = replace(hopper(), items={k: v for k, v in hopper().items.items() if k != opaque.FWID})

    assert _codes(_system(old)) == ["gpu_fwid: claims"]
    assert _codes(_system(old), _edited('fwid = "required"', 'fwid = "may_be_absent"')) == []


@pytest.mark.parametrize(
    ("floor", "is_refused"),
    [("590.12", False), ("590.12.0", True), ("590.13", True), ("1000.0", True), ("99.99", False)],
)
def test_driver_floor_compares_numbers(floor: str, is_refused: bool) -> None:
    codes = _codes(_system(hopper()), _edited("550.90.07", floor))

    assert codes == (["gpu_versions: tcb_floor"] if is_refused else [])


@pytest.mark.parametrize(
    ("floor", "is_refused"),
    [("96.00.a5.00.01", False), ("96.00.a5.00.02", True), ("96.00.b0.00.00", True)],
)
def test_vbios_floor_compares_hex_numbers(floor: str, is_refused: bool) -> None:
    policy = _edited('hopper = "96.00.74.00.00"', f'hopper = "{floor}"')

    assert _codes(_system(hopper()), policy) == (["gpu_versions: tcb_floor"] if is_refused else [])


@pytest.mark.parametrize("version", [b"5x0.12\0", b"590-12\0", b"590.\0", b"5_9_0.12\0"])
def test_a_driver_version_that_is_no_number_is_too_old(version: bytes) -> None:
    system = assemble([claims(hopper(0, driver_version=version))])

    assert "gpu_versions: tcb_floor" in _codes(system)


def test_switches_have_a_floor_of_their_own() -> None:
    devices = [*(board_gpu(number) for number in range(8)), *(switch(n) for n in range(4))]
    board = assemble([claims(device) for device in devices])
    quiet = _edited('measurements = "required"', 'measurements = "not_checked"').replace(
        'ocsp = "required"\nmax_ocsp_age_s = 7200', 'ocsp = "not_checked"'
    )

    assert _codes(board, quiet) == []
    assert _codes(board, quiet.replace("96.10.00.00.00", "96.10.56.00.00")) == [
        "gpu_versions: tcb_floor"
    ]


def test_allow_list_of_devices() -> None:
    listed = f'ueids = ["{0x2000}"]\n'

    assert _codes(_system(hopper(0)), listed + POLICY) == []
    assert _codes(_system(hopper(1)), listed + POLICY) == ["gpu_allowed: platform_not_allowed"]


def test_measurements_must_have_been_compared() -> None:
    system = _system(hopper(), measurements=None)

    assert _codes(system) == ["measurements: endorsement_missing"]
    policy = _edited('measurements = "required"', 'measurements = "not_checked"')
    assert _codes(system, policy) == []


@pytest.mark.parametrize("revocation", [None, ()])
def test_revocation_must_have_been_checked(revocation: tuple[()] | None) -> None:
    assert _codes(_system(hopper(), revocation=revocation)) == ["gpu_revocation: crl_missing"]


def test_revocation_answers_must_be_recent() -> None:
    """One answer that is older than the others decides; its age is that at verification."""
    limit = AT + timedelta(hours=1)  # the answers are an hour old at AT

    assert _codes(_system(hopper(), verified_at=limit)) == []
    late = _system(hopper(), verified_at=limit + timedelta(seconds=1))
    assert _codes(late) == ["gpu_revocation: crl_expired"]
    good = _system(hopper()).gpus[0].revocation or ()
    old = replace(good[1], this_update=AT - timedelta(hours=3))
    one_old = _system(hopper(), revocation=(good[0], old, good[2]))
    assert _codes(one_old) == ["gpu_revocation: crl_expired"]


_GRACE = _edited("max_ocsp_age_s = 7200", "max_ocsp_age_s = 7200\nocsp_grace_s = 3600")


def test_a_late_answers_age_is_that_when_it_ended() -> None:
    """How late it may be was the verifier's question; how long it lived is still this rule's."""
    device, hour = hopper(), timedelta(hours=1)

    def codes(lived: timedelta, policy: str = _GRACE) -> list[str]:
        ended = AT - timedelta(minutes=50)
        answers = ocsp_answers(device, this_update=ended - lived, next_update=ended)
        made = claims(device, rims=gpu_rims(device), answers=answers, ocsp_grace=hour)
        return _codes(assemble([made]), policy)

    assert codes(timedelta(hours=2)) == []
    assert codes(timedelta(hours=2, seconds=1)) == ["gpu_revocation: crl_expired"]


def test_a_rule_without_grace_refuses_what_is_late() -> None:
    """The verifier would have; nothing rests on that alone."""
    device, ended = hopper(), AT - timedelta(minutes=10)
    late = claims(
        device,
        rims=gpu_rims(device),
        answers=ocsp_answers(device, next_update=ended),
        ocsp_grace=timedelta(hours=2),
    )

    assert _codes(assemble([late])) == ["gpu_revocation: crl_expired"]
    assert _codes(assemble([late]), _GRACE) == []
    shorter = _GRACE.replace("ocsp_grace_s = 3600", "ocsp_grace_s = 600")
    assert _codes(assemble([late]), shorter) == ["gpu_revocation: crl_expired"]
    enough = _GRACE.replace("ocsp_grace_s = 3600", "ocsp_grace_s = 601")
    assert _codes(assemble([late]), enough) == []


@pytest.mark.parametrize("line", [line for line in POLICY.splitlines() if " = " in line])
def test_every_key_must_be_said(line: str) -> None:
    _, problems = _parse(POLICY.replace(f"{line}\n", ""))

    assert any("missing" in problem for problem in problems)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('architectures = ["HOPPER", "BLACKWELL"]', "architectures = []", "empty"),
        ('"HOPPER", ', '"HOPPER", "LS10", ', "not a value it takes"),
        ('modes = ["spt", "mpt", "ppcie"]', "modes = []", "empty"),
        ('devtools = "refused"', 'devtools = "allowed"', "want one of refused"),
        ("max_count = 8", "max_count = 17", "min_count to 16"),
        ("min_count = 1", "min_count = 9", "min_count to 16"),
        ("min_count = 1", "min_count = 0", "at least 1"),
        ('min_driver = "550.90.07"', 'min_driver = "550"', "want a version"),
        ('min_driver = "550.90.07"', 'min_driver = "newest"', "want a version"),
        ('hopper = "96.00.74.00.00"', 'hopper = "96.00.74"', "want a version"),
        ('hopper = "96.00.74.00.00"', 'hopper = "96.00.7G.00.00"', "want a short lower-case"),
        ("max_ocsp_age_s = 7200", "max_ocsp_age_s = 86401", "at most 86400"),
        ("max_ocsp_age_s", "ocsp_grace_s = -1\nmax_ocsp_age_s", "at least 0"),
        ("max_ocsp_age_s", "ocsp_grace_s = 1209601\nmax_ocsp_age_s", "at most 1209600"),
        ("max_ocsp_age_s", 'ocsp_grace_s = "1"\nmax_ocsp_age_s', "at least 0"),
        ("devtools", "ueids = []\ndevtools", "empty"),
        ("devtools", 'ueids = ["0x2000"]\ndevtools', "not a value it takes"),
        ("devtools", 'extra = "x"\ndevtools', "unknown key"),
        ('ocsp = "required"', 'ocsp = "not_checked"', "unknown key"),
        ('modes = ["spt", "mpt", "ppcie"]', 'modes = ["spt"]', "ls10: unknown key"),
    ],
)
def test_a_policy_that_is_unclear_is_refused(old: str, new: str, problem: str) -> None:
    _, problems = _parse(_edited(old, new))

    assert any(problem in found for found in problems), problems
