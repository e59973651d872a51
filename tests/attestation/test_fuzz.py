"""2,000 damaged inputs for every parser: our errors only, in bounded time and memory.

``python -m tests.fuzz --parser NAME --seed 20261130`` makes the same ones, and then more.
"""

import time
from pathlib import Path

import pytest

from attestation.errors import MalformedEvidence
from tests.fuzz import damage, driver
from tests.fuzz.driver import Target, fuzz, fuzz_apart, make_input
from tests.fuzz.targets import TARGETS, load_target

_NUM_INPUTS = 2000
_SEED = 20261130


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_meet_only_our_errors(name: str, tmp_path: Path) -> None:
    failure = fuzz(load_target(name), num_inputs=_NUM_INPUTS, seed=_SEED)

    if failure is not None:
        pytest.fail(f"{failure.save(tmp_path)}\n{failure.problem}")


def test_every_target_has_the_name_it_is_asked_for_by() -> None:
    assert [load_target(name).name for name in TARGETS] == list(TARGETS)


@pytest.mark.parametrize(
    "name", ["tdx-quote", "tcb-info", "certificate-chain", "jws", "rim", "ocsp"]
)
def test_most_inputs_differ_and_many_get_far(name: str) -> None:
    """Damage that every parser refuses at its first byte would prove nothing."""
    target = load_target(name)
    inputs = [make_input(target, seed=1, index=index) for index in range(300)]

    assert inputs == [make_input(target, seed=1, index=index) for index in range(300)]
    assert len(set(inputs)) > 200
    assert len({_outcome(target, data) for data in inputs}) >= 4


def _outcome(target: Target, data: bytes) -> str:
    try:
        target.parse(data)
    except driver.OUR_ERRORS as err:
        return str(err)
    return "read"


def _target(parse: object) -> Target:
    assert callable(parse)
    return Target(name="broken", parse=parse, seeds=[b"abcd" * 8], mutate=damage.raw)


def _raise_key_error(data: bytes) -> None:
    if data[:1] != b"a":
        raise KeyError(data[0])


def _hang(data: bytes) -> None:
    while data[:1] != b"a":
        time.sleep(0.001)


def _spin(data: bytes) -> None:
    while data[:1] != b"a":
        pass


_HELD: list[bytes] = []  # of a child process, which ends soon


def _grow(data: bytes) -> None:
    if len(data) > 40:
        _HELD.append(b"x" * (driver.MAX_GROWTH_BYTES * 2))


def _refuse(data: bytes) -> None:
    raise MalformedEvidence("format", "never good")


@pytest.mark.parametrize(
    ("parse", "problem"),
    [
        (_raise_key_error, "KeyError"),
        (_hang, "takes longer"),
        (_spin, "takes longer"),
        (_grow, "peak memory grew"),
    ],
)
def test_a_broken_parser_is_found_with_the_input_that_breaks_it(
    parse: object, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parse is _hang:
        monkeypatch.setattr(driver, "MAX_WAIT_S", 1.0)
    target = _target(parse)

    failure = fuzz_apart(target, num_inputs=1000, seed=3, show=lambda line: None)

    assert failure is not None
    assert problem in failure.problem
    assert failure.data == make_input(target, seed=3, index=failure.index)


def test_a_parser_that_refuses_everything_is_not_broken() -> None:
    assert fuzz(_target(_refuse), num_inputs=50, seed=1) is None
