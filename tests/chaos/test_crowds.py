"""A few strangers at a time: is each turned away as it must be, and do others get their answers?

What their first tokens cost is measured at full size by ``make chaos``; here a machine that is busy
with other tests may take several times as long, and only a gross effect is a failure.
"""

import os
import random
import signal
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.processes import Processes, processes
from tests.chaos.victims import Comparison, compare, crowd, quantile, window

GROSS_RATIO = 5.0
NUM_REQUESTS = 15
MOST_MOMENT_S = 4.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("crowds")) as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "size"), [("idle", 150), ("slow-head", 40), ("slow-body", 20), ("bomb", 3)]
)
def test_strangers_do_not_keep_others_waiting(running: Processes, kind: str, size: int) -> None:
    quiet = window(running, NUM_REQUESTS)
    with crowd(running, kind, size) as counts:
        crowded = window(running, NUM_REQUESTS)
    assert counts["connected"] >= size
    assert compare(quiet, crowded).low < GROSS_RATIO
    if kind == "bomb":
        refused = counts.get("415", 0)
        assert refused > 0
        assert refused + counts.get("cut", 0) >= sum(counts.values()) - counts["connected"]


def test_a_gateway_that_stops_for_moments_is_noticed(running: Processes) -> None:
    """The positive control: the measure sees what a crowd that mattered would do.

    So few samples of a machine that is busy may show nothing, a few times.
    """
    assert any(_compare_held_up(running).is_beyond for _ in range(5))


def _compare_held_up(running: Processes) -> Comparison:
    quiet = window(running, 2 * NUM_REQUESTS)
    is_over = threading.Event()
    moment_s = min(0.5 + 4 * max(quiet), MOST_MOMENT_S)  # longer than the machine's own hiccups

    def hold_up() -> None:
        while not is_over.is_set():
            os.kill(running.pid("serve"), signal.SIGSTOP)
            is_over.wait(moment_s)
            os.kill(running.pid("serve"), signal.SIGCONT)
            is_over.wait(0.05)

    holding = threading.Thread(target=hold_up)
    holding.start()
    try:
        crowded = window(running, 2 * NUM_REQUESTS)
    finally:
        is_over.set()
        holding.join()
    return compare(quiet, crowded)


def _samples(seed: int, *, scale: float = 1.0) -> list[float]:
    rng = random.Random(seed)
    return [scale * 0.005 * rng.lognormvariate(0, 0.3) for _ in range(400)]


def test_equal_waits_are_within() -> None:
    found = compare(_samples(1), _samples(2))
    assert found.low < 1 < found.high
    assert (found.is_within, found.is_beyond) == (True, False)


def test_half_as_long_again_is_beyond() -> None:
    found = compare(_samples(1), _samples(2, scale=1.5))
    assert (found.is_within, found.is_beyond) == (False, True)


def test_a_wide_interval_shows_nothing() -> None:
    found = Comparison(quiet_p95_s=1.0, crowd_p95_s=2.0, low=0.9, high=4.0)
    assert (found.is_within, found.is_beyond) == (False, False)


def test_the_quantile_is_a_sample() -> None:
    assert quantile([3.0, 1.0, 2.0]) == 3.0
    assert quantile(list(range(100))) == 95
