"""Do arrivals have the rate, spread and repeatability that a profile asks for?"""

import random
import statistics

import pytest

from loadtest.arrivals import arrival_offsets_s
from loadtest.load_profile import ArrivalKind, Arrivals


def _gaps(kind: ArrivalKind, burstiness: float = 1.0, seed: int = 7) -> list[float]:
    arrivals = Arrivals(kind=kind, rate_per_s=50.0, burstiness=burstiness)
    offsets = arrival_offsets_s(arrivals, duration_s=400.0, rng=random.Random(seed))
    assert offsets == sorted(offsets)
    assert offsets[-1] < 400.0
    return [b - a for a, b in zip([0.0, *offsets], offsets, strict=False)]


@pytest.mark.parametrize(
    ("kind", "burstiness", "variation"),
    [("poisson", 1.0, 1.0), ("constant", 1.0, 0.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)],
)
def test_gaps_have_the_mean_and_variation_of_their_kind(
    kind: ArrivalKind, burstiness: float, variation: float
) -> None:
    gaps = _gaps(kind, burstiness)
    mean = statistics.fmean(gaps)
    assert mean == pytest.approx(0.02, rel=0.05)
    assert statistics.pstdev(gaps) / mean == pytest.approx(variation, abs=0.08)


def test_the_same_seed_gives_the_same_schedule_and_another_seed_does_not() -> None:
    assert _gaps("poisson") == _gaps("poisson")
    assert _gaps("poisson") != _gaps("poisson", seed=8)
