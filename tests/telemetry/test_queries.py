"""Do the dashboard's numbers equal NumPy's over the same rows?"""

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from telemetry.db.models import RequestRow
from telemetry.db.records import SpanRecord
from telemetry.db.runs import RunExists, RunRecord, RunRequest, write_run
from telemetry.db.writer import write_spans
from telemetry.histogram import ExpHistogram
from telemetry.queries import latency, runs, throughput, trust
from telemetry.queries.overview import overview
from telemetry.queries.quantiles import NO_VALUES, Quantiles
from telemetry.queries.window import MAX_BINS, MAX_WINDOW_S, Window, bin_window
from tests.telemetry.spans import MS, SECOND, attest_span, chat_span

WINDOW = Window(from_ns=1_000 * SECOND, to_ns=1_010 * SECOND, step_ns=SECOND)


def nearest_rank(values_s: "np.typing.NDArray[np.float64]") -> list[float]:
    """p50, p90, p99 by NumPy; the rank is made whole first, as 0.9 * 10 is not always 9."""
    ordered = np.sort(values_s)
    return [float(ordered[-(-percent * len(ordered) // 100) - 1]) for percent in (50, 90, 99)]


@pytest.fixture
def spans(engine: Engine) -> list[SpanRecord]:
    """400 requests of two models over ten seconds, each tenth failed."""
    rng = np.random.default_rng(11)
    made = []
    for number in range(1, 401):
        ttft_ns = int(rng.lognormal(-2, 0.7) * SECOND)
        gaps_ns = [int(gap * SECOND) for gap in rng.lognormal(-4, 0.5, 7)]
        made.append(
            chat_span(
                number,
                started_ns=WINDOW.from_ns + int(rng.random() * 10 * SECOND),
                e2e_ns=ttft_ns + sum(gaps_ns),
                ttft_s=ttft_ns / SECOND,
                gaps_ns=gaps_ns,
                GEN_AI_REQUEST_MODEL="a" if number % 4 else "b",
                GEN_AI_USAGE_OUTPUT_TOKENS=8,
                **({"ERROR_TYPE": "upstream_unavailable"} if number % 10 == 0 else {}),
            )
        )
    outside = [
        chat_span(901, started_ns=WINDOW.from_ns - 1, GEN_AI_REQUEST_MODEL="c"),
        chat_span(902, started_ns=WINDOW.to_ns, GEN_AI_REQUEST_MODEL="c"),
    ]
    with engine.begin() as connection:
        write_spans(connection, made + outside)
    return made


def successes(spans: list[SpanRecord], model: str | None = None) -> list[SpanRecord]:
    return [
        span
        for span in spans
        if "error.type" not in span.attributes
        and model in (None, span.attributes["gen_ai.request.model"])
    ]


@pytest.mark.parametrize("model", [None, "a"])
def test_sql_quantiles_are_numpys(
    spans: list[SpanRecord], reader: Engine, model: str | None
) -> None:
    good = successes(spans, model)
    e2e_s = np.array([(span.ended_ns - span.started_ns) / SECOND for span in good])
    with reader.connect() as connection:
        answer = overview(connection, WINDOW, model)
        row = connection.execute(
            latency.quantiles_of_window(RequestRow.e2e_ns, WINDOW, model)
        ).one()
    assert row[1] == len(good)
    assert [value / SECOND for value in row[2:]] == nearest_rank(e2e_s)
    ttft_s = np.array([span.attributes["gen_ai.response.time_to_first_chunk"] for span in good])
    total = answer.total_ttft
    assert [total.p50, total.p90, total.p99] == nearest_rank(ttft_s)
    idx = np.array([(span.started_ns - WINDOW.from_ns) // SECOND for span in good])
    for k, found in enumerate(answer.ttft):
        assert found.count == int((idx == k).sum())
        assert [found.p50, found.p90, found.p99] == nearest_rank(ttft_s[idx == k])


def test_itl_comes_from_merged_histograms(spans: list[SpanRecord], reader: Engine) -> None:
    with reader.connect() as connection:
        answer = overview(connection, WINDOW, None)
    gaps = [ExpHistogram.from_attributes(span.attributes) for span in successes(spans)]
    assert answer.total_itl.count == sum(part.count for part in gaps) == 360 * 7
    assert sum(found.count for found in answer.itl) == 360 * 7
    rng = np.random.default_rng(11)
    pooled = []
    for number in range(1, 401):
        rng.lognormal(-2, 0.7)
        drawn = rng.lognormal(-4, 0.5, 7)
        rng.random()
        pooled += [] if number % 10 == 0 else list(drawn)
    expected = nearest_rank(np.array(pooled))
    found = [answer.total_itl.p50, answer.total_itl.p90, answer.total_itl.p99]
    assert found == pytest.approx(expected, rel=0.011)


def test_sums_count_failures_and_only_the_window(spans: list[SpanRecord], reader: Engine) -> None:
    with reader.connect() as connection:
        answer = overview(connection, WINDOW, None)
    assert answer.models == ("a", "b")
    assert (answer.total_sums.requests, answer.total_sums.errors) == (400, 40)
    assert answer.total_sums.cached_tokens == 400 * 16
    assert answer.total_sums.prompt_tokens == 400 * 40
    assert sum(part.requests for part in answer.sums) == 400
    tpot_s = np.array(
        [
            round((s.ended_ns - s.started_ns - round(float(ttft) * SECOND)) / 7) / SECOND  # type: ignore[arg-type]
            for s in successes(spans)
            if (ttft := s.attributes["gen_ai.response.time_to_first_chunk"])
        ]
    )
    total = answer.total_tpot
    assert [total.p50, total.p90, total.p99] == nearest_rank(tpot_s)


def test_empty_window(reader: Engine) -> None:
    with reader.connect() as connection:
        answer = overview(connection, WINDOW, None)
    assert answer.models == ()
    assert answer.total_ttft == answer.total_itl == answer.total_tpot == NO_VALUES
    assert answer.e2e == (NO_VALUES,) * 10


@pytest.mark.parametrize("window_s", [10, 59, 720, 721, 3_600, 86_400, 604_800, MAX_WINDOW_S])
@pytest.mark.parametrize("until_ns", [1_000 * SECOND, 1_796_006_793_782_942_500])
def test_windows_cover_what_was_asked_in_few_whole_bins(window_s: int, until_ns: int) -> None:
    window = bin_window(until_ns=until_ns, window_s=window_s)
    assert 5 <= window.num_bins <= MAX_BINS
    assert window.to_ns % window.step_ns == 0
    assert window.from_ns + window.num_bins * window.step_ns == window.to_ns
    assert window.to_ns - window.step_ns < until_ns <= window.to_ns
    assert 0 <= window.duration_s - window_s < window.step_ns / SECOND


@pytest.mark.parametrize("window_s", [0, 9, MAX_WINDOW_S + 1])
def test_other_windows_are_refused(window_s: int) -> None:
    with pytest.raises(ValueError, match="window_s"):
        bin_window(until_ns=SECOND, window_s=window_s)


def test_latest_appraisal_of_each_worker(engine: Engine, reader: Engine) -> None:
    spans = [
        attest_span(1, worker="w-b", at_ns=10 * SECOND),
        attest_span(2, worker="w-a", at_ns=12 * SECOND, tier="contraindicated"),
        attest_span(3, worker="w-a", at_ns=11 * SECOND),
        attest_span(4, worker="w-b", at_ns=13 * SECOND, tier="warning"),
        attest_span(5, worker="w-a", at_ns=14 * SECOND, tier="affirming"),  # not yet
    ]
    with engine.begin() as connection:
        write_spans(connection, spans)
    with Session(reader) as session:
        rows = session.scalars(trust.latest_appraisals(now_ns=13 * SECOND)).all()
        assert [(row.worker_id, row.tier) for row in rows] == [
            ("w-a", "contraindicated"),
            ("w-b", "warning"),
        ]


@pytest.mark.parametrize(
    ("tier", "code", "simulated", "not_after_ns", "words"),
    [
        ("affirming", None, False, 200, "accepted by the policy"),
        ("affirming", None, False, 100, "expired"),
        ("warning", None, True, 200, "simulated"),
        ("warning", "tcb_status", False, 200, "with a warning"),
        ("contraindicated", "untrusted_root", True, 50, "root that the policy does not trust"),
        ("contraindicated", "some_new_code", False, None, "was rejected"),
        ("contraindicated", None, False, None, "was rejected"),
        ("none", "upstream_unavailable", None, None, "could not be reached"),
        ("none", None, None, None, "not been appraised"),
        ("nonsense", None, None, None, "not been appraised"),
    ],
)
def test_reason_in_words(
    tier: str, code: str | None, simulated: bool | None, not_after_ns: int | None, words: str
) -> None:
    sentence = trust.reason(
        tier=tier, code=code, simulated=simulated, not_after_ns=not_after_ns, now_ns=100
    )
    assert words in sentence
    assert sentence.endswith(".")


RUN = RunRecord(
    id="run-1",
    label="smoke",
    profile="smoke",
    config_json="{}",
    started_ns=1_000 * SECOND,
    ended_ns=1_030 * SECOND,
    valid=False,
    invalid_reasons=("generator_late",),
)


def run_requests(count: int) -> list[RunRequest]:
    """``count`` measured requests 10 ms apart: TTFT 1..count ms, then nine gaps of 2 ms."""
    measured = [
        RunRequest(
            seq=number,
            phase="measure",
            intended_ns=number * 10 * MS,
            dispatched_ns=number * 10 * MS + 1,
            first_token_ns=number * 10 * MS + number * MS,
            last_token_ns=number * 10 * MS + number * MS + 18 * MS,
            output_tokens=10,
            gap_sketch=ExpHistogram.from_ns([2 * MS] * 9),
            status=200,
        )
        for number in range(1, count + 1)
    ]
    warm_up = replace(measured[0], seq=0, phase="warmup", first_token_ns=90 * SECOND)
    failed = RunRequest(
        seq=count + 1, phase="measure", intended_ns=MS * 20, status=503, error_type="overloaded"
    )
    return [warm_up, *measured, failed]


def test_run_summary_counts_from_intended_without_warm_up(engine: Engine, reader: Engine) -> None:
    write_run(engine, RUN, run_requests(2_500))  # more than two transactions
    with Session(reader) as session:
        found = session.scalars(runs.recent_runs(10)).all()
        (summary,) = runs.summaries(session.connection(), found)
    assert (summary.requests, summary.failed, summary.output_tokens) == (2_501, 1, 25_000)
    assert summary.ttft == Quantiles(count=2_500, p50=1.25, p90=2.25, p99=2.475)
    assert summary.e2e.p50 == pytest.approx(1.268)
    assert summary.tpot == Quantiles(count=2_500, p50=0.002, p90=0.002, p99=0.002)
    assert summary.itl.count == 22_500
    assert summary.itl.p99 == pytest.approx(0.002, rel=0.011)
    assert summary.achieved_rate == pytest.approx(2_500 / (25.0 + 2.5 + 0.018 - 0.01))
    assert summary.run.invalid_reasons == ["generator_late"]


def test_a_run_measures_to_the_end_of_the_response_where_it_is_known(
    engine: Engine, reader: Engine
) -> None:
    later = [replace(item, ended_ns=(item.last_token_ns or 0) + 9 * MS) for item in run_requests(1)]
    write_run(engine, RUN, later)
    with Session(reader) as session:
        found = session.scalars(runs.recent_runs(10)).all()
        (summary,) = runs.summaries(session.connection(), found)
    assert summary.e2e.p50 == pytest.approx(0.028)
    assert summary.tpot.p50 == pytest.approx(0.003)


def test_a_run_is_written_once(engine: Engine) -> None:
    write_run(engine, RUN, run_requests(3))
    with pytest.raises(RunExists):
        write_run(engine, RUN, run_requests(3))


def test_what_an_interrupted_write_left_is_replaced(engine: Engine, reader: Engine) -> None:
    broken = [*run_requests(1_500), *run_requests(1)]  # repeated seq: the second chunk fails
    with pytest.raises(Exception, match=r"(?i)unique"):
        write_run(engine, RUN, broken)
    with Session(reader) as session:
        assert session.scalars(runs.recent_runs(10)).all() == []
    write_run(engine, RUN, run_requests(2))
    with Session(reader) as session:
        found = session.scalars(runs.recent_runs(10)).all()
        assert runs.summaries(session.connection(), found)[0].requests == 3


def test_a_run_without_requests(engine: Engine, reader: Engine) -> None:
    write_run(engine, RUN, [])
    with Session(reader) as session:
        found = session.scalars(runs.recent_runs(10)).all()
        (summary,) = runs.summaries(session.connection(), found)
    assert (summary.requests, summary.ttft, summary.achieved_rate) == (0, NO_VALUES, None)


def test_recent_requests_come_newest_first(engine: Engine, reader: Engine) -> None:
    with engine.begin() as connection:
        write_spans(connection, [chat_span(n, started_ns=n * SECOND) for n in (2, 3, 1)])
    with Session(reader) as session:
        rows = session.scalars(throughput.recent_requests(2)).all()
        assert [row.started_ns for row in rows] == [3 * SECOND, 2 * SECOND]
