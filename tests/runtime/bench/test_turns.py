"""Does a target wait until the one before has let go of the processors?"""

from collections.abc import Sequence

import pytest

from runtime.bench.load import Job, LoadRun
from runtime.bench.turns import AfterOthers, wait_until_quiet


class Machine:
    """One whose processors are busy until a moment; its clock goes only while somebody sleeps."""

    def __init__(self, *, busy_until_s: float) -> None:
        self.now_s, self._until_s = 0.0, busy_until_s

    def now(self) -> float:
        return self.now_s

    def busy(self) -> float:
        return min(self.now_s, self._until_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("busy_until_s", "is_quiet", "least_s", "most_s"),
    [(0.0, True, 0.2, 0.5), (1.1, True, 1.1, 2.0), (1e9, False, 10.0, 11.0)],
)
def test_it_waits_for_a_quiet_machine_but_not_for_ever(
    busy_until_s: float, is_quiet: bool, least_s: float, most_s: float
) -> None:
    machine = Machine(busy_until_s=busy_until_s)
    found = wait_until_quiet(busy=machine.busy, now=machine.now, sleep=machine.sleep)
    assert found == is_quiet
    assert least_s <= machine.now_s <= most_s


def test_a_target_waits_before_it_runs() -> None:
    order: list[str] = []

    class Told:
        name = "told"

        def run(self, jobs: Sequence[Job], *, concurrency: int) -> LoadRun:
            order.append(f"run {len(jobs)} by {concurrency}")
            return LoadRun(records=[], wall_s=1.0)

    def wait() -> bool:
        order.append("wait")
        return True

    target = AfterOthers(Told(), wait=wait)
    target.run([], concurrency=3)
    assert (target.name, order) == ("told", ["wait", "run 0 by 3"])
