"""Do the records give the numbers that a stopwatch at the client would?"""

from collections.abc import Sequence

import pytest

from runtime import EngineConfig
from runtime.bench.driver import run_jobs
from runtime.bench.load import (
    Job,
    LoadRun,
    Record,
    gaps_within,
    latency_cells,
    output_tokens_per_s,
)
from runtime.bench.prompts import Prompts
from runtime.bench.report import NotMeasurable
from runtime.bench.serving import Sizes, measure_arrival, measure_shared, measure_streams
from runtime.plan import StepPlan
from tests.runtime.harness import Harness


class Letters:
    """One token a character."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        assert not special
        return [ord(char) for char in text]


class Clockwork:
    """A target whose tokens come every 10 ms, every 50 ms while a long prompt is read."""

    name = "clockwork"

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[Job], int]] = []

    def run(self, jobs: Sequence[Job], *, concurrency: int) -> LoadRun:
        self.asked.append((jobs, concurrency))
        records = []
        for job in jobs:
            sent = 0.5 if job.after_tokens else 0.0
            step = 0.05 if job.after_tokens else 0.01
            chunks = [sent + step * (1 + i) for i in range(job.max_tokens)]
            if job.after_tokens:
                chunks = [1.0]
            records.append(
                Record(
                    sent_s=sent,
                    chunk_s=chunks,
                    output_tokens=job.max_tokens,
                    prompt_tokens=len(job.prompt_token_ids),
                )
            )
        return LoadRun(records=records, wall_s=2.0)


def record(sent: float, *chunks: float, tokens: int | None = None) -> Record:
    return Record(
        sent_s=sent,
        chunk_s=list(chunks),
        output_tokens=len(chunks) if tokens is None else tokens,
        prompt_tokens=10,
        cached_tokens=4,
    )


def test_throughput_and_latencies() -> None:
    run = LoadRun(records=[record(0.0, 1.0, 1.5, 2.0), record(1.0, 1.5)], wall_s=2.0)
    assert output_tokens_per_s(run) == 2.0
    cells = latency_cells([run])
    assert cells["ttft_p50_ms"] == 750.0
    assert cells["itl_p50_ms"] == 500.0
    assert cells["tpot_p50_ms"] == 500.0
    assert (cells["prompt_tokens"], cells["cached_tokens"]) == (20, 8)


def test_several_tokens_in_one_chunk_lower_tpot_and_not_itl() -> None:
    cells = latency_cells([LoadRun(records=[record(0.0, 1.0, 2.0, tokens=5)], wall_s=2.0)])
    assert (cells["itl_p50_ms"], cells["tpot_p50_ms"]) == (1000.0, 250.0)


def test_gaps_count_where_they_overlap_the_time() -> None:
    found = gaps_within(record(0.0, 1.0, 2.0, 3.5, 4.0), 2.5, 3.75)
    assert found == [1.5, 0.5]


def test_a_failed_request_is_no_measurement() -> None:
    with pytest.raises(NotMeasurable, match="1 of 2 requests"):
        LoadRun(records=[record(0.0, 1.0), record(0.0)], wall_s=1.0).require_complete()
    broken = record(0.0, 1.0)
    broken.error = "ended with error"
    with pytest.raises(NotMeasurable, match="ended with error"):
        LoadRun(records=[broken], wall_s=1.0).require_complete()


def test_the_driver_keeps_so_many_streams_and_holds_back_late_jobs() -> None:
    harness = Harness(EngineConfig(num_blocks=64, block_size=4, max_waiting=64))
    seen: list[int] = []
    harness.runner.before_run = lambda plan: seen.append(plan.num_sequences)
    jobs = [Job(prompt_token_ids=(1, 2, number % 5 + 1), max_tokens=4) for number in range(6)]
    late = Job(prompt_token_ids=(3, 3, 3), max_tokens=1, after_tokens=20)
    run = run_jobs(harness.engine, [*jobs, late], concurrency=3)
    run.require_complete()
    assert max(seen) == 3
    assert [found.output_tokens for found in run.records] == [4] * 6 + [1]
    assert all(found.prompt_tokens == 3 for found in run.records)
    before = sum(at < run.records[-1].sent_s for r in run.records[:-1] for at in r.chunk_s)
    assert before >= 20


def test_a_failing_engine_fails_the_run() -> None:
    harness = Harness(EngineConfig(num_blocks=64, block_size=4))

    def fail(_plan: StepPlan) -> None:
        raise RuntimeError("injected")

    harness.runner.before_run = fail
    run = run_jobs(harness.engine, [Job(prompt_token_ids=(1, 2), max_tokens=2)], concurrency=1)
    with pytest.raises(NotMeasurable):
        run.require_complete()


def test_prompts_have_their_length_and_are_never_repeated() -> None:
    prompts = Prompts(Letters(), seed=0)
    made = [prompts.take(100) for _ in range(20)]
    assert {len(prompt) for prompt in made} == {100}
    assert len(set(made)) == 20
    assert Prompts(Letters(), seed=0).take(100) == made[0]
    assert Prompts(Letters(), seed=1).take(100) != made[0]


def test_prompts_of_a_text_are_cut_one_after_the_other() -> None:
    text = "".join(chr(97 + idx % 26) for idx in range(60))
    prompts = Prompts(Letters(), seed=0, text=text)
    made = [prompts.take(20) for _ in range(5)]
    assert made[0] == tuple(map(ord, text[:20]))
    assert made[1] == tuple(map(ord, text[20:40]))
    assert made[3] == tuple(map(ord, text[1:21])) or made[3] != made[0]
    with pytest.raises(NotMeasurable, match="60 tokens"):
        prompts.take(61)


def test_repetitive_prompts_repeat() -> None:
    prompts = Prompts(Letters(), seed=0, repetitive=True)
    first, second = (prompts.take(500)[3:] for _ in range(2))  # without its number
    period = next(n for n in range(1, 400) if first[n:] == first[:-n])
    assert period < 200
    assert first == second


SIZES = Sizes(streams=4, requests=6, prompt=8, output=5, prefix=40, prefix_requests=3)


def test_streams_are_asked_in_a_closed_loop() -> None:
    target = Clockwork()
    (row,) = measure_streams([target], Prompts(Letters(), seed=0), SIZES, 2)
    assert [concurrency for _, concurrency in target.asked] == [4, 4, 4]  # the first is not counted
    assert row["tokens_per_s"] == 6 * 5 / 2.0
    assert (row["n"], row["itl_p50_ms"], row["target"]) == (2, 10.0, "clockwork")
    prompts = [job.prompt_token_ids for jobs, _ in target.asked for job in jobs]
    assert len(set(prompts)) == 18


def test_a_shared_prefix_is_new_in_each_round_and_known_in_its_second_half() -> None:
    target = Clockwork()
    rows = measure_shared([target], Prompts(Letters(), seed=0), SIZES, 1)
    assert [row["name"] for row in rows] == ["shared prefix, cold", "shared prefix, warm"]
    assert [row["n"] for row in rows] == [1, 1]  # the first round is not counted
    prefixes = [{job.prompt_token_ids[:40] for job in jobs} for jobs, _ in target.asked]
    assert [len(found) for found in prefixes] == [1, 1, 1, 1]
    assert prefixes[0] == prefixes[1] != prefixes[2] == prefixes[3]


def test_an_arrival_compares_gaps_before_and_during() -> None:
    sizes = Sizes(arriving=50, arriving_streams=2, arriving_output=150, arriving_context=4)
    (row,) = measure_arrival([Clockwork()], Prompts(Letters(), seed=0), sizes, 1)
    assert (row["n"], row["itl_p50_before_ms"]) == (1, 10.0)
    assert row["p99_of_p50_ratio"] == pytest.approx(1.0, abs=0.01)
    assert row["arriving_ttft_p50_ms"] == 500.0


def test_an_arrival_after_the_streams_is_no_measurement() -> None:
    sizes = Sizes(arriving=50, arriving_streams=2, arriving_output=20, arriving_context=4)
    with pytest.raises(NotMeasurable, match="ended before"):
        measure_arrival([Clockwork()], Prompts(Letters(), seed=0), sizes, 1)
