"""When is each request meant to start?  Open loop: the schedule never waits for an answer."""

import random
from collections.abc import Iterator

from loadtest.load_profile import Arrivals


def arrival_offsets_s(arrivals: Arrivals, *, duration_s: float, rng: random.Random) -> list[float]:
    """Seconds from the start of the run, ascending, all below ``duration_s``.

    ``poisson`` draws exponential gaps, ``gamma`` gaps of the same mean with coefficient of
    variation ``1 / sqrt(burstiness)``, ``constant`` none at all.
    """
    offsets: list[float] = []
    now_s = 0.0
    for gap_s in _gaps_s(arrivals, rng):
        now_s += gap_s
        if now_s >= duration_s:
            return offsets
        offsets.append(now_s)
    return offsets


def _gaps_s(arrivals: Arrivals, rng: random.Random) -> Iterator[float]:
    mean_s = 1.0 / arrivals.rate_per_s
    shape = 1.0 if arrivals.kind == "poisson" else arrivals.burstiness
    while True:
        yield mean_s if arrivals.kind == "constant" else rng.gammavariate(shape, mean_s / shape)
