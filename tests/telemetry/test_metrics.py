"""Do the formulas hold at their edges: no token, one token, several tokens in a chunk?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry import metrics
from telemetry.timeline import RequestTimeline

MS = 1_000_000


def timeline(*chunks: tuple[int, int], ended_ms: int | None = None) -> RequestTimeline:
    """Arrived at 1 s of the clock, dispatched 5 ms later; chunks as (ms after arrival, tokens)."""
    start_ns = 1_000 * MS
    made = RequestTimeline(arrived_ns=start_ns, wall_anchor_ns=0)
    made.mark_dispatched(start_ns + 5 * MS)
    for at_ms, tokens in chunks:
        made.mark_chunk(start_ns + at_ms * MS, tokens)
    if ended_ms is not None:
        made.mark_ended(start_ns + ended_ms * MS)
    return made


def test_one_token_per_chunk() -> None:
    made = timeline((20, 1), (30, 1), (60, 1), ended_ms=62)
    assert metrics.ttft_s(made) == pytest.approx(0.020)
    assert metrics.ttft_s(made, origin="dispatched") == pytest.approx(0.015)
    assert metrics.e2e_s(made) == pytest.approx(0.062)
    assert metrics.itl_gaps_s(made) == pytest.approx([0.010, 0.030])
    assert metrics.tpot_s(made) == pytest.approx((0.062 - 0.020) / 2)


def test_no_token_defines_neither_ttft_nor_itl_nor_tpot() -> None:
    made = timeline(ended_ms=10)
    assert metrics.ttft_s(made) is None
    assert metrics.itl_gaps_s(made) == []
    assert metrics.tpot_s(made) is None
    assert metrics.e2e_s(made) == pytest.approx(0.010)


def test_one_token_has_a_ttft_but_no_tpot() -> None:
    made = timeline((20, 1), ended_ms=21)
    assert metrics.ttft_s(made) == pytest.approx(0.020)
    assert metrics.tpot_s(made) is None
    assert metrics.itl_gaps_s(made) == []


def test_running_request_has_no_e2e() -> None:
    made = timeline((20, 1), (30, 1))
    assert metrics.e2e_s(made) is None
    assert metrics.tpot_s(made) is None


def test_never_dispatched_has_no_service_latency() -> None:
    made = RequestTimeline(arrived_ns=0, wall_anchor_ns=0)
    made.mark_ended(5)
    assert metrics.e2e_s(made, origin="dispatched") is None


def test_a_gap_is_one_however_many_tokens_a_chunk_has() -> None:
    made = timeline((40, 4), (80, 4), (120, 4), ended_ms=120)
    assert metrics.itl_gaps_s(made) == pytest.approx([0.040, 0.040])
    assert metrics.tpot_s(made) == pytest.approx(0.080 / 11)


def test_reported_usage_outranks_counted_chunks() -> None:
    made = timeline((20, 1), (40, 1), ended_ms=40)
    made.mark_usage(prompt_tokens=9, cached_tokens=4, output_tokens=5)
    assert metrics.tpot_s(made) == pytest.approx(0.020 / 4)


def test_first_marks_stay_even_at_clock_zero() -> None:
    made = RequestTimeline(arrived_ns=0, wall_anchor_ns=0)
    made.mark_dispatched(0)
    made.mark_dispatched(7)
    made.mark_first_byte(0)
    made.mark_chunk(9)
    made.mark_ended(9)
    made.mark_ended(11)
    assert (made.dispatched_ns, made.first_byte_ns, made.ended_ns) == (0, 0, 9)


@pytest.mark.parametrize(("now_ns", "tokens"), [(10, 0), (-1, 1)])
def test_impossible_chunks_are_refused(now_ns: int, tokens: int) -> None:
    made = RequestTimeline(arrived_ns=0, wall_anchor_ns=0)
    with pytest.raises(ValueError, match=r"chunk|clock"):
        made.mark_chunk(now_ns, tokens)


@given(
    st.lists(st.floats(0, 1e3), min_size=1, max_size=200),
    st.integers(0, 100).map(lambda percent: percent / 100),
)
def test_quantile_is_numpys_nearest_rank(values: list[float], q: float) -> None:
    values.sort()
    rank = -(-round(q * 100) * len(values) // 100)  # exact, in integers
    assert metrics.quantile(values, q) == values[max(1, rank) - 1]
    if (
        round(q * 100) * len(values)
    ) % 100:  # NumPy's own float rank may be off by one at whole ranks
        assert metrics.quantile(values, q) == np.quantile(values, q, method="inverted_cdf")


def test_quantile_of_nothing_and_outside() -> None:
    assert metrics.quantile([], 0.5) is None
    with pytest.raises(ValueError, match=r"0\.\.1"):
        metrics.quantile([1.0], 1.5)


def test_slo_and_goodput() -> None:
    slo = metrics.Slo(ttft_s=0.2, tpot_s=0.05)
    assert slo.is_met(ttft_s=0.2, tpot_s=0.05, e2e_s=None)
    assert slo.is_met(ttft_s=0.1, tpot_s=None, e2e_s=9.0)
    assert not slo.is_met(ttft_s=0.21, tpot_s=0.01, e2e_s=None)
    assert not slo.is_met(ttft_s=None, tpot_s=0.01, e2e_s=None)
    assert not slo.is_met(ttft_s=0.1, tpot_s=0.06, e2e_s=None)
    assert not metrics.Slo(e2e_s=1.0).is_met(ttft_s=None, tpot_s=None, e2e_s=1.1)
    assert metrics.goodput_rps(30, 10.0) == 3.0
    assert metrics.goodput_rps(30, 0.0) is None
