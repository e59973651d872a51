"""Are a run's numbers right, and does it say when it cannot be trusted?"""

import io
import random
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from loadtest.cli import _print_summary
from loadtest.load_profile import Profile, load_profile
from loadtest.records import SKIPPED, UNFINISHED, RequestRecord, load_records
from loadtest.summary import has_enough_samples, max_lateness_s, quantiles, summarize

MS = 1_000_000
PROFILE: Profile = load_profile("smoke")


def _record(seq: int, *, late_ms: int = 0, ttft_ms: int = 100, tokens: int = 5) -> RequestRecord:
    intended = 1_000_000_000 * (seq + 1)
    dispatched = intended + late_ms * MS
    chunks = tuple(dispatched + (ttft_ms + 10 * k) * MS for k in range(tokens))
    return RequestRecord(
        seq=seq,
        is_warmup=False,
        intended_ns=intended,
        dispatched_ns=dispatched,
        first_byte_ns=dispatched + MS,
        text_chunks_ns=chunks,
        ended_ns=chunks[-1],
        status=200,
        prompt_tokens=10,
        output_tokens=tokens,
        cached_tokens=4,
    )


@pytest.mark.parametrize("count", [1, 2, 97, 1000])
def test_quantiles_equal_the_inverted_cdf(count: int) -> None:
    rng = random.Random(count)
    values = [rng.lognormvariate(0, 2) for _ in range(count)]
    got = quantiles(values)
    want = np.quantile(values, [0.5, 0.9, 0.99], method="inverted_cdf")
    assert [got.p50, got.p90, got.p99] == pytest.approx(list(want))


def test_latency_counts_from_the_intended_start() -> None:
    summary = summarize([_record(k, late_ms=300) for k in range(10)], PROFILE)
    assert summary.ttft_s.p50 == pytest.approx(0.4)
    assert summary.ttft_from_dispatch_s.p50 == pytest.approx(0.1)
    assert summary.itl_s.p50 == pytest.approx(0.01)
    assert summary.tpot_s.p50 == pytest.approx(0.01)
    assert "generator_limited" in summary.invalid_reasons
    told = io.StringIO()
    _print_summary(summary, Console(file=told, width=200))
    p99_s, bound_s = summary.lateness_s.p99 or 0, max_lateness_s(summary.ttft_s)
    assert f"lateness: p99 {p99_s * 1e3:.1f} ms, bound {bound_s * 1e3:.1f} ms" in told.getvalue()


def _failed(seq: int) -> RequestRecord:
    return RequestRecord(
        seq=seq, is_warmup=False, intended_ns=1_000_000_000 * (seq + 1), error_code="http_500"
    )


@pytest.mark.parametrize(
    ("failed", "span_s"),
    [(0, 8 + 0.1 + 4 * 0.01), (20, 19.0)],
    ids=["first", "long after the last answer"],
)
def test_rates_run_from_the_first_start_to_the_last_one_or_token(
    failed: int, span_s: float
) -> None:
    records = [_failed(failed), *(_record(k) for k in range(1, 9))]
    summary = summarize(records, PROFILE)
    assert summary.achieved_rate_per_s == pytest.approx(8 / span_s)
    assert summary.goodput_per_s == pytest.approx(8 / span_s)
    assert summary.output_tokens_per_s == pytest.approx(8 * 5 / span_s)


@pytest.mark.parametrize(
    ("count", "num_late", "is_limited"),
    [(31, 1, False), (31, 4, True), (299, 3, False), (300, 3, False), (300, 4, True)],
)
def test_one_late_start_of_a_few_does_not_condemn_the_generator(
    count: int, num_late: int, is_limited: bool
) -> None:
    records = [_record(k, late_ms=300 if k < num_late else 0) for k in range(count)]
    reasons = summarize(records, PROFILE).invalid_reasons
    assert ("generator_limited" in reasons) is is_limited


def test_warm_up_is_not_measured() -> None:
    slow = RequestRecord(seq=0, is_warmup=True, intended_ns=0, error_code="http_500")
    summary = summarize([slow, *(_record(k) for k in range(1, 6))], PROFILE)
    assert (summary.requests, summary.failed, summary.is_valid) == (5, 0, True)
    assert (summary.prompt_tokens, summary.cached_tokens) == (50, 20)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (SKIPPED, "in_flight_limit_reached"),
        (UNFINISHED, "unfinished_requests"),
        ("overloaded", "too_many_failures"),
    ],
)
def test_failures_count_and_make_a_run_invalid(code: str, reason: str) -> None:
    bad = RequestRecord(seq=9, is_warmup=False, intended_ns=5 * 10**9, error_code=code)
    summary = summarize([*(_record(k) for k in range(9)), bad], PROFILE)
    assert summary.errors == {code: 1}
    assert reason in summary.invalid_reasons
    assert summary.goodput_per_s == pytest.approx(9 / (8 + 0.14))


def test_a_slow_answer_is_no_goodput() -> None:
    summary = summarize([_record(0), _record(1, ttft_ms=5_000)], PROFILE)
    assert summary.goodput_per_s == pytest.approx(1 / (1 + 5.04))


def test_an_empty_run_is_invalid() -> None:
    assert summarize([], PROFILE).invalid_reasons == ("no_requests",)


def test_few_samples_are_named() -> None:
    assert not has_enough_samples(2_999, 0.99)
    assert has_enough_samples(3_001, 0.99)


def test_records_survive_a_crash_in_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    whole = [_record(1), _record(0)]
    path.write_text("".join(r.to_line() + "\n" for r in whole) + '{"seq": 2, "inte')
    assert load_records(path) == [_record(0), _record(1)]
