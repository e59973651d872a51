"""Is a round measured anew while others use the machine, and not for ever?"""

import argparse
from collections.abc import Iterator, Mapping

import pytest

from tests.bench.__main__ import _quiet_round


class Busy:
    """A subject beside others that use ``foreign`` processors, one value a round."""

    name = version = "busy"
    foreign_cpu = 0.0

    def __init__(self, *foreign: float) -> None:
        self._foreign: Iterator[float] = iter(foreign)
        self.num_rounds = 0

    def single(self) -> Mapping[str, float]:
        self.foreign_cpu = next(self._foreign)
        self.num_rounds += 1
        return {"decode 128": float(self.num_rounds)}


@pytest.mark.parametrize(
    ("foreign", "rounds"), [((0.1, 0.0), 1), ((1.5, 0.9, 0.2, 0.0), 3), ((2.0,) * 9, 4)]
)
def test_a_busy_round_is_measured_again(foreign: tuple[float, ...], rounds: int) -> None:
    subject = Busy(*foreign)
    options = argparse.Namespace(tries=4, max_foreign=0.2)
    speeds, last = _quiet_round(subject, options)
    assert (subject.num_rounds, speeds["decode 128"]) == (rounds, float(rounds))
    assert last == foreign[rounds - 1]
