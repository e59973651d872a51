"""Does the engine refuse, report, abort and fail as it says?"""

import logging
import subprocess
import sys
from collections.abc import Sequence

import pytest

from runtime import (
    Delta,
    DuplicateRequest,
    Engine,
    EngineConfig,
    EngineFull,
    InvalidConfig,
    InvalidPrompt,
    NullObserver,
    PromptTooLong,
    SamplingParams,
)
from runtime.plan import Float32Array, StepPlan
from runtime.sampler import BROKEN_ROW, SampleRow
from tests.runtime.harness import FRESH_SEED, Harness, StatsLog, assert_same_output, request
from tests.support.fake_runner import (
    VOCAB_SIZE,
    FakeClock,
    FakeRunner,
    FakeSampler,
    FakeTokenizer,
)


def make_harness(
    *, max_waiting: int = 8, max_context_tokens: int = 10_000, max_sequences: int = 2
) -> Harness:
    config = EngineConfig(
        num_blocks=16,
        block_size=4,
        max_batch_tokens=16,
        max_sequences=max_sequences,
        max_waiting=max_waiting,
    )
    return Harness(config, max_context_tokens=max_context_tokens)


def test_a_prompt_without_room_for_one_more_token_is_refused() -> None:
    harness = make_harness(max_context_tokens=10)
    with pytest.raises(PromptTooLong) as caught:
        harness.add(request("r", (1,) * 10))
    assert caught.value.code == "context_length_exceeded"
    harness.add(request("r", (1,) * 9, max_tokens=5))
    assert len(harness.drain()["r"].token_ids) == 1


def test_the_block_pool_bounds_the_context_too() -> None:
    harness = make_harness()
    assert harness.engine.max_context_tokens == 64
    with pytest.raises(PromptTooLong):
        harness.add(request("r", (1,) * 64))


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE])
def test_an_unknown_token_is_refused(token_id: int) -> None:
    with pytest.raises(InvalidPrompt):
        make_harness().add(request("r", (1, token_id)))


def test_a_full_queue_refuses_and_recovers() -> None:
    harness = make_harness(max_waiting=2, max_sequences=1)
    for name in ("a", "b"):
        harness.add(request(name, (1, 2), max_tokens=2))
    with pytest.raises(EngineFull) as caught:
        harness.add(request("c", (1, 2)))
    assert caught.value.code == "overloaded"
    harness.step()
    harness.add(request("c", (1, 2)))
    assert all(outcome.finish_reason == "length" for outcome in harness.drain().values())


def test_a_tenant_leaves_places_in_the_queue_to_others() -> None:
    harness = make_harness(max_waiting=16, max_sequences=1)
    for idx in range(14):
        harness.add(request(f"flood{idx}", (1, 2), tenant="flood"))
    with pytest.raises(EngineFull):
        harness.add(request("flood", (1, 2), tenant="flood"))
    for name in ("quiet", "other"):
        harness.add(request(name, (1, 2), tenant=name))
    with pytest.raises(EngineFull):
        harness.add(request("third", (1, 2), tenant="third"))


def test_an_id_is_taken_until_its_request_ends() -> None:
    harness = make_harness()
    harness.add(request("r", (1,), max_tokens=1))
    with pytest.raises(DuplicateRequest):
        harness.add(request("r", (2,)))
    harness.drain()
    harness.add(request("r", (2,), max_tokens=1))
    harness.drain()


def test_a_refused_request_leaves_nothing_behind() -> None:
    harness = make_harness(max_context_tokens=4)
    with pytest.raises(PromptTooLong):
        harness.add(request("r", (1,) * 9))
    assert not harness.engine.has_work()
    assert harness.engine.step() == []


def test_an_abort_frees_blocks_at_once_and_is_reported_once() -> None:
    harness = make_harness()
    harness.add(request("r", (1,) * 9, max_tokens=50))
    harness.add(request("other", (2,) * 9, max_tokens=3))
    harness.step()
    pool = harness.engine._scheduler.kv.pool
    used = pool.num_used
    harness.engine.abort("r")
    harness.engine.abort("r")
    harness.engine.abort("never seen")
    assert pool.num_used == used - 3
    assert [d.finish_reason for d in harness.step() if d.request_id == "r"] == ["abort"]
    outcome = harness.drain()["other"]
    assert outcome.finish_reason == "length"
    assert pool.num_used == 0


def test_an_abort_of_the_only_request_is_still_reported() -> None:
    harness = make_harness()
    harness.add(request("r", (1,)))
    harness.engine.abort("r")
    assert harness.engine.has_work()
    (delta,) = harness.step()
    assert delta.finish_reason == "abort"
    assert delta.timing is not None
    assert delta.timing.first_scheduled_ns is None
    assert not harness.engine.has_work()


def test_a_failing_batch_ends_its_requests_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    harness = make_harness(max_sequences=2)
    requests = [request(name, (first, 2, 3, 4, 5, 6)) for first, name in enumerate("abc")]
    for one in requests:
        harness.add(one)

    def fail(plan: StepPlan) -> None:
        harness.runner.scribble(plan)
        raise RuntimeError("canary 31337")

    harness.runner.before_run = fail
    with caplog.at_level(logging.DEBUG):
        reasons = {delta.request_id: delta.finish_reason for delta in harness.step()}
    assert reasons == {"a": "error", "b": "error"}
    assert harness.log.stats[-1].error_type == "RuntimeError"
    assert harness.log.stats[-1].num_used_blocks == 0
    assert [record.message for record in caplog.records] == ["batch failed"]
    assert "31337" not in str([vars(record) for record in caplog.records])
    harness.runner.before_run = lambda _plan: None
    assert_same_output(harness.drain()["c"], harness.expected(requests[2]))


class BadSampler(FakeSampler):
    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids

    def sample(self, logits: Float32Array, rows: Sequence[SampleRow]) -> list[int]:
        return self.token_ids


def run_once(sampler: FakeSampler) -> list[Delta]:
    config = EngineConfig(num_blocks=4, block_size=4)
    engine = Engine(
        runner=FakeRunner(num_blocks=4, block_size=4),
        sampler=sampler,
        tokenizer=FakeTokenizer(),
        config=config,
        observer=NullObserver(),
        clock_ns=FakeClock(),
        fresh_seed=lambda: FRESH_SEED,
    )
    engine.add(request("r", (1, 2)))
    return engine.step()


@pytest.mark.parametrize("token_ids", [[], [1, 2], [-2], [VOCAB_SIZE]])
def test_a_sampler_that_breaks_its_promise_is_an_error(token_ids: list[int]) -> None:
    assert [delta.finish_reason for delta in run_once(BadSampler(token_ids))] == ["error"]


class BreaksFirst(FakeSampler):
    """The first row of the first step has no token."""

    def __init__(self) -> None:
        self.num_to_break = 1

    def sample(self, logits: Float32Array, rows: Sequence[SampleRow]) -> list[int]:
        num_broken, self.num_to_break = self.num_to_break, 0
        return [BROKEN_ROW] * num_broken + super().sample(logits, rows)[num_broken:]


def test_a_row_without_a_token_ends_its_request_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = StatsLog()
    engine = Engine(
        runner=FakeRunner(num_blocks=8, block_size=4),
        sampler=BreaksFirst(),
        tokenizer=FakeTokenizer(),
        config=EngineConfig(num_blocks=8, block_size=4),
        observer=log,
        clock_ns=FakeClock(),
        fresh_seed=lambda: FRESH_SEED,
    )
    for name in "ab":
        engine.add(request(name, (1, 2), max_tokens=3))
    reasons = {delta.request_id: delta.finish_reason for delta in engine.step()}
    assert reasons == {"a": "error", "b": None}
    assert (log.stats[-1].error_type, log.stats[-1].num_sampled_tokens) == ("non_finite_logits", 1)
    (record,) = caplog.records
    assert vars(record)["error_type"] == "non_finite_logits"


def test_what_a_broken_row_computed_is_found_by_nobody() -> None:
    harness = Harness(EngineConfig(num_blocks=8, block_size=4), sampler=BreaksFirst())
    prompt = tuple(range(12))
    harness.add(request("broken", prompt, max_tokens=2))
    assert harness.drain()["broken"].finish_reason == "error"
    assert harness.log.stats[-1].num_cached_blocks == 0
    again = request("again", prompt, max_tokens=2)
    harness.add(again)
    outcome = harness.drain()["again"]
    assert_same_output(outcome, harness.expected(again))
    assert outcome.timing is not None
    assert outcome.timing.cached_tokens == 0


def test_a_runner_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        Engine(
            runner=FakeRunner(num_blocks=5, block_size=4),
            sampler=FakeSampler(),
            tokenizer=FakeTokenizer(),
            config=EngineConfig(num_blocks=4, block_size=4),
            observer=NullObserver(),
            clock_ns=FakeClock(),
            fresh_seed=lambda: FRESH_SEED,
        )


@pytest.mark.parametrize("promise", [None, False, True])
def test_batch_invariance_needs_a_runner_that_promises_it(promise: bool | None) -> None:
    runner = FakeRunner(num_blocks=4, block_size=4)
    if promise is not None:
        runner.is_batch_invariant = promise  # type: ignore[attr-defined]

    def make() -> Engine:
        return Engine(
            runner=runner,
            sampler=FakeSampler(),
            tokenizer=FakeTokenizer(),
            config=EngineConfig(num_blocks=4, block_size=4, batch_invariant=True),
            observer=NullObserver(),
            clock_ns=FakeClock(),
            fresh_seed=lambda: FRESH_SEED,
        )

    if promise:
        make()
    else:
        with pytest.raises(InvalidConfig, match="batch"):
            make()


def test_timing_is_in_order_and_counts_are_exact() -> None:
    harness = make_harness()
    harness.engine._clock_ns = iter(range(100, 200)).__next__
    harness.add(request("r", (1,) * 20, max_tokens=3, arrival_ns=42))
    timing = harness.drain()["r"].timing
    assert timing is not None
    # Steps read the clock twice: [100, 101] and [102, 103] prefill, then one token each.
    assert (timing.queued_ns, timing.first_scheduled_ns) == (42, 100)
    assert (timing.first_token_ns, timing.finished_ns) == (103, 107)
    assert (timing.prompt_tokens, timing.cached_tokens, timing.output_tokens) == (20, 0, 3)


def test_stop_strings_end_the_request_and_free_its_blocks() -> None:
    harness = make_harness()
    base = request("plain", (3, 1, 2), max_tokens=30)
    text = harness.expected(base).text
    sampling = SamplingParams(max_tokens=30, temperature=0, ignore_eos=True, stop=(text[9:12],))
    stopped = request("stopped", (3, 1, 2), sampling=sampling)
    harness.add(stopped)
    outcome = harness.drain()["stopped"]
    assert outcome.finish_reason == "stop"
    assert_same_output(outcome, harness.expected(stopped))
    assert harness.log.stats[-1].num_used_blocks == 0


def test_a_seed_gives_the_same_text_in_any_company() -> None:
    sampling = SamplingParams(max_tokens=20, temperature=1.0, seed=5, ignore_eos=True)
    alone, crowded = make_harness(), make_harness(max_sequences=5)
    alone.add(request("r", (1, 2, 3), sampling=sampling))
    for other in range(3):
        crowded.add(request(f"other{other}", (other, 2), sampling=sampling))
    crowded.step()
    crowded.add(request("r", (1, 2, 3), sampling=sampling))
    assert_same_output(crowded.drain()["r"], alone.drain()["r"])


def test_requests_without_a_seed_get_fresh_ones() -> None:
    fresh_seeds = iter((1, 2, 1))

    def first_text() -> str:
        config = EngineConfig(num_blocks=16, block_size=4)
        engine = Engine(
            runner=FakeRunner(num_blocks=16, block_size=4),
            sampler=FakeSampler(),
            tokenizer=FakeTokenizer(),
            config=config,
            observer=NullObserver(),
            clock_ns=FakeClock(),
            fresh_seed=fresh_seeds.__next__,
        )
        sampling = SamplingParams(max_tokens=40, ignore_eos=True)
        engine.add(request("r", (1,), sampling=sampling))
        return "".join(delta.text for _ in range(40) for delta in engine.step())

    first, second, third = first_text(), first_text(), first_text()
    assert first == third != second


def test_a_delta_shows_no_text() -> None:
    delta = Delta(request_id="r", token_ids=(31337,), text="canary")
    assert "31337" not in repr(delta)
    assert "canary" not in repr(delta)


def test_importing_the_runtime_loads_no_torch() -> None:
    code = "import runtime, sys; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
