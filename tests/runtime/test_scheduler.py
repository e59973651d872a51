"""Does every sequence get its turn, within one budget, however few blocks there are?"""

import numpy as np
import pytest

from runtime import EngineConfig, GenerationRequest, SamplingParams
from tests.runtime.harness import Harness, assert_same_output, request
from tests.support.fake_runner import VOCAB_SIZE


def make_harness(
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_batch_tokens: int = 8,
    max_sequences: int = 4,
    output_quantile: float = 1.0,
) -> Harness:
    config = EngineConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch_tokens=max_batch_tokens,
        max_sequences=max_sequences,
        output_quantile=output_quantile,
    )
    return Harness(config)


def prompt(num_tokens: int, *, first: int = 1) -> tuple[int, ...]:
    return tuple((first + 5 * idx + idx // 7) % VOCAB_SIZE for idx in range(num_tokens))


def test_a_prompt_is_computed_in_chunks_of_the_budget() -> None:
    harness = make_harness(max_batch_tokens=8)
    harness.add(request("r", prompt(19), max_tokens=2))
    harness.drain()
    assert [plan.num_tokens for plan in harness.runner.plans] == [8, 8, 3, 1]
    assert [len(plan.logits_rows) for plan in harness.runner.plans] == [0, 0, 1, 1]


def test_decoding_goes_on_at_every_step_beside_a_long_prefill() -> None:
    harness = make_harness(max_batch_tokens=8)
    harness.add(request("short", prompt(3), max_tokens=20))
    harness.step()
    harness.add(request("long", prompt(60, first=2), max_tokens=2))
    for _ in range(8):
        assert [delta.request_id for delta in harness.step()] == ["short"]
        plan = harness.runner.plans[-1]
        assert np.diff(plan.query_starts).tolist() == [1, 7]


def test_a_prefill_goes_on_beside_as_much_decoding_as_there_can_be() -> None:
    harness = make_harness(max_batch_tokens=5, max_sequences=4)
    for name in ("a", "b", "c"):
        harness.add(request(name, prompt(1, first=len(name)), max_tokens=40))
    harness.step()
    harness.add(request("late", prompt(10, first=3), max_tokens=1))
    for _ in range(5):
        harness.step()
    assert harness.outcomes["late"].finish_reason == "length"
    assert {len(harness.outcomes[name].token_ids) for name in ("a", "b", "c")} == {6}


def test_equal_prompts_go_in_order_of_arrival() -> None:
    harness = make_harness(max_batch_tokens=8)
    for idx, name in enumerate(("first", "second", "third")):
        harness.add(request(name, prompt(11, first=idx), max_tokens=1))
    order = [delta.request_id for _ in range(6) for delta in harness.step()]
    assert order == ["first", "second", "third"]


def test_short_prompts_are_not_stuck_behind_a_long_one() -> None:
    harness = make_harness(max_batch_tokens=8)
    harness.add(request("long", prompt(80), max_tokens=1))
    harness.step()
    for idx in range(3):
        harness.add(request(f"short{idx}", prompt(6, first=2 + idx), max_tokens=1))
    order = [[delta.request_id for delta in harness.step()] for _ in range(3)]
    assert order == [["short0"], ["short1"], ["short2"]]
    assert all(plan.num_tokens == 8 for plan in harness.runner.plans)  # the long one got the rest


def test_a_long_prompt_advances_by_its_share_however_many_short_ones_come() -> None:
    harness = make_harness(max_batch_tokens=8, num_blocks=256)
    harness.add(request("long", prompt(80), max_tokens=1))
    num_steps = 0
    while harness.outcomes["long"].finish_reason is None and num_steps <= 80:
        short = request(f"short{num_steps}", prompt(8), max_tokens=1, salt=bytes([num_steps]))
        harness.add(short)  # of a salt of its own: nothing of it is cached
        harness.step()
        num_steps += 1
    assert 10 < num_steps <= 80 / (8 / 4)


def test_no_more_sequences_run_than_allowed() -> None:
    harness = make_harness(max_batch_tokens=32, max_sequences=2)
    for name in "abcde":
        harness.add(request(name, prompt(2), max_tokens=3))
    harness.drain()
    assert max(plan.num_sequences for plan in harness.runner.plans) == 2


def test_a_large_prompt_is_not_overtaken_by_small_ones() -> None:
    harness = make_harness(num_blocks=8, max_batch_tokens=40)
    harness.add(request("running", prompt(8), max_tokens=8))
    harness.step()
    harness.add(request("large", prompt(28, first=2), max_tokens=1))
    harness.add(request("small", prompt(2, first=3), max_tokens=1))
    order = [
        delta.request_id
        for _ in range(12)
        for delta in harness.step()
        if delta.finish_reason is not None
    ]
    assert order == ["running", "large", "small"]


def test_the_youngest_makes_room_and_comes_back_to_the_head_of_the_queue() -> None:
    harness = make_harness(num_blocks=6, max_batch_tokens=24, max_sequences=3, output_quantile=0)
    requests = [
        request(name, prompt(7, first=first), max_tokens=12)
        for first, name in enumerate(("old", "middle", "young", "waiting"), start=1)
    ]
    for one in requests:
        harness.add(one)
    finished = [
        delta.request_id
        for _ in range(60)
        if harness.engine.has_work()
        for delta in harness.step()
        if delta.finish_reason is not None
    ]
    assert finished == ["old", "middle", "young", "waiting"]
    assert sum(stats.num_preempted for stats in harness.log.stats) >= 2
    for one in requests:
        assert_same_output(harness.outcomes[one.request_id], harness.expected(one))


def test_a_sequence_that_fills_the_cache_alone_finishes() -> None:
    harness = make_harness(num_blocks=3, block_size=4)
    one = request("r", prompt(5), max_tokens=100)
    harness.add(one)
    outcome = harness.drain()["r"]
    assert outcome.finish_reason == "length"
    assert len(outcome.token_ids) == 3 * 4 - 5
    assert_same_output(outcome, harness.expected(one))


def random_request(
    rng: np.random.Generator, request_id: str, common: list[int]
) -> GenerationRequest:
    tail = rng.integers(0, VOCAB_SIZE, size=rng.integers(1, 6)).tolist()
    sampling = SamplingParams(
        max_tokens=int(rng.integers(1, 30)),
        temperature=float(rng.choice([0.0, 0.7])),
        seed=int(rng.integers(0, 100)),
        ignore_eos=True,
    )
    head = common[: int(rng.integers(0, len(common)))]
    return request(request_id, (*head, *tail), sampling=sampling)


@pytest.mark.parametrize("output_quantile", [0, 1])
@pytest.mark.parametrize("seed", range(12))
def test_crowded_and_lone_requests_give_the_same_text(seed: int, output_quantile: float) -> None:
    rng = np.random.default_rng(seed)
    max_sequences = int(rng.integers(2, 7))
    harness = make_harness(
        num_blocks=int(rng.integers(12, 18)),
        block_size=int(rng.integers(2, 5)),
        max_batch_tokens=max_sequences + int(rng.integers(1, 20)),
        max_sequences=max_sequences,
        output_quantile=output_quantile,
    )
    common = rng.integers(0, VOCAB_SIZE, size=12).tolist()
    requests = [random_request(rng, f"r{idx}", common) for idx in range(25)]
    requests = [
        one for one in requests if len(one.prompt_token_ids) < harness.engine.max_context_tokens
    ]
    for one in requests:
        harness.add(one)
        for _ in range(int(rng.integers(0, 3))):
            harness.step()
    outcomes = harness.drain()
    for one in requests:
        assert_same_output(outcomes[one.request_id], harness.expected(one))
    stats = harness.log.stats
    assert (sum(step.num_preempted for step in stats) > 0) == (output_quantile == 0)
    assert max(step.num_batch_tokens for step in stats) <= harness.config.max_batch_tokens
    assert any(outcome.timing and outcome.timing.cached_tokens for outcome in outcomes.values())


def test_one_whose_blocks_are_all_shared_takes_none_from_those_before_it() -> None:
    """Two equal requests: when the last block is taken the second holds nothing of its own."""
    config = EngineConfig(
        num_blocks=4,
        block_size=2,
        max_batch_tokens=16,
        max_sequences=2,
        output_quantile=0,
        max_prefix_wait_steps=0,
    )
    harness = Harness(config)
    requests = [request(name, prompt(4), max_tokens=4) for name in ("first", "second")]
    for one in requests:
        harness.add(one)
    for _ in range(3):
        harness.step()
    assert harness.log.stats[-1].num_used_blocks == 3
    assert [delta.request_id for delta in harness.step()] == ["first"]
    assert harness.log.stats[-1].num_preempted == 1
    outcomes = harness.drain()
    for one in requests:
        assert_same_output(outcomes[one.request_id], harness.expected(one))


def test_only_who_frees_a_block_is_preempted() -> None:
    """The third holds what the first holds, so the second makes room, though it ranks higher."""
    config = EngineConfig(
        num_blocks=6,
        block_size=2,
        max_batch_tokens=16,
        max_sequences=3,
        output_quantile=0,
        max_prefix_wait_steps=0,
    )
    harness = Harness(config)
    for name, tokens in (("first", prompt(4)), ("second", (5, 6, 7)), ("third", prompt(4))):
        harness.add(request(name, tokens, max_tokens=4))
    harness.step()
    scheduler = harness.engine._scheduler
    assert scheduler.kv.pool.num_used == 4
    scheduler._preempt_below(scheduler._running[0])
    assert [one.request.request_id for one in scheduler._running] == ["first", "third"]
    assert scheduler.kv.pool.num_used == 2
