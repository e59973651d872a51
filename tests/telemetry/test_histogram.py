"""Does the histogram merge exactly, and stay within its promised error?"""

import json
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.histogram import MAX_BUCKETS, ExpHistogram, merge_all
from telemetry.merging import HistogramSum

NS = st.integers(0, 10**15)


@given(st.lists(st.lists(NS, max_size=30), max_size=8), st.randoms(use_true_random=False))
def test_merge_of_parts_is_the_histogram_of_all(parts: list[list[int]], rng: random.Random) -> None:
    whole = ExpHistogram.from_ns(value for part in parts for value in part)
    pieces = [ExpHistogram.from_ns(part) for part in parts]
    rng.shuffle(pieces)
    assert merge_all(pieces) == whole
    folded = ExpHistogram()
    for piece in pieces:
        folded = folded.merge(piece)
    assert folded == whole
    assert folded.to_bytes() == whole.to_bytes()
    running = HistogramSum()
    for piece in pieces:
        running.add(piece.to_bytes())
    assert running.total() == whole


def test_running_merge_of_different_scales() -> None:
    parts = [ExpHistogram.from_ns([7, 10**8]), ExpHistogram.from_ns([3, 10**9]).downscale(2)]
    running = HistogramSum()
    for part in parts:
        running.add(part.to_bytes())
    assert running.total() == merge_all(parts)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("seed", range(4))
def test_quantiles_are_within_one_percent_of_numpys(q: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slow = rng.random(20_000) < 0.015  # a slow mode in the tail, as real latencies have
    values = np.where(slow, rng.lognormal(1, 0.4, 20_000), rng.lognormal(-4, 0.6, 20_000))
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    approx = ExpHistogram.from_values(values.tolist()).quantile(q)
    assert approx is not None
    assert abs(approx / exact - 1) <= (2 ** (1 / 32) - 1) / (2 ** (1 / 32) + 1) + 1e-9


@given(st.lists(NS, max_size=50))
def test_every_form_round_trips(values_ns: list[int]) -> None:
    made = ExpHistogram.from_ns(values_ns)
    assert ExpHistogram.from_bytes(made.to_bytes()) == made
    small = ExpHistogram.from_ns(value // 10**4 for value in values_ns)  # sums below 2^53 ns
    assert ExpHistogram.from_wire(json.loads(json.dumps(small.to_wire()))) == small
    assert ExpHistogram.from_attributes(small.to_attributes()) == small
    assert made.count == len(values_ns)
    assert made.sum_ns == sum(values_ns)
    assert made.max_ns == max(values_ns, default=0)


def test_bucket_bounds_follow_the_data_model() -> None:
    # (base^i, base^(i+1)]: one second is base^0, so it belongs to bucket -1
    assert ExpHistogram.from_ns([10**9]).offset == -1
    assert ExpHistogram.from_ns([10**9 + 1]).offset == 0
    assert ExpHistogram.from_ns([2 * 10**9]).offset == 31
    assert ExpHistogram.from_ns([0, 0]) == ExpHistogram(zero_count=2)


def test_downscaling_joins_neighbouring_buckets() -> None:
    fine = ExpHistogram.from_ns([3, 10**6, 10**9, 10**9 + 1, 7 * 10**9])
    coarse = fine.downscale(0)
    assert coarse.count == fine.count
    assert coarse.sum_ns == fine.sum_ns
    ones = [coarse.offset + k for k, n in enumerate(coarse.counts) for _ in range(n)]
    assert ones == sorted(
        math.ceil(math.log2(ns / 1e9)) - 1 for ns in (3, 10**6, 10**9, 10**9 + 1, 7 * 10**9)
    )
    assert fine.merge(ExpHistogram(scale=3, offset=0, counts=(1,))).scale == 3
    with pytest.raises(ValueError, match="refine"):
        coarse.downscale(5)


def test_empty() -> None:
    assert ExpHistogram.from_values([]).quantile(0.5) is None
    assert merge_all([]) == ExpHistogram()
    assert ExpHistogram(zero_count=3).quantile(0.99) == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"counts": None},
        {"counts": "12"},
        {"counts": [1] * (MAX_BUCKETS + 1)},
        {"counts": [-1]},
        {"counts": [1.5]},
        {"counts": [True]},
        {"scale": 20},
        {"scale": True},
        {"zero_count": -1},
        {"offset": 2**40},
        {"count": 99},
        {"sum": float("nan")},
        {"sum": -1.0},
        {"max": "1"},
        {"max": 1e30},
    ],
)
def test_wire_from_outside_is_checked(change: dict[str, Any]) -> None:
    wire = ExpHistogram.from_values([0.5]).to_wire() | change
    with pytest.raises(ValueError, match=next(iter(change))):
        ExpHistogram.from_wire(wire)


@pytest.mark.parametrize("offset", [-65, 64, 2**14])
def test_a_bucket_that_no_duration_reaches_is_refused(offset: int) -> None:
    wire = ExpHistogram(offset=offset, scale=0, counts=(1,)).to_wire()
    with pytest.raises(ValueError, match="offset"):
        ExpHistogram.from_wire(wire)


@pytest.mark.parametrize("offset", [-64, 63])
def test_quantiles_of_the_outermost_buckets_are_numbers(offset: int) -> None:
    wire = ExpHistogram(offset=offset, scale=0, counts=(1,), max_ns=1).to_wire()
    value = ExpHistogram.from_wire(wire).quantile(0.5)
    assert value is not None
    assert 0 < value <= 1e-9


@pytest.mark.parametrize("blob", [b"", b"junk", ExpHistogram().to_bytes()[:-3]])
def test_broken_blobs_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="histogram"):
        ExpHistogram.from_bytes(blob)


def test_negative_durations_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        ExpHistogram.from_values([-0.1])
