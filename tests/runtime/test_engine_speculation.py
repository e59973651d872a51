"""Is the output the same with drafts and without, and are the drafts' facts true?"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from runtime import EngineConfig, GenerationRequest, SamplingParams, TokenLogprobs
from runtime.speculation import DraftWanted
from tests.runtime.harness import Harness, Outcome, assert_same_output, request
from tests.support.fake_runner import EOS_TOKEN_ID, VOCAB_SIZE


class Oracle:
    """Knows each output in advance; ``spoil`` may turn a draft into another."""

    def __init__(self, spoil: Callable[[int], int] = lambda draft: draft) -> None:
        self.outputs: dict[str, tuple[int, ...]] = {}
        self.prompts: dict[str, int] = {}
        self.spoil = spoil

    def learn(self, request: GenerationRequest, want: Outcome) -> None:
        self.outputs[request.request_id] = want.token_ids
        self.prompts[request.request_id] = len(request.prompt_token_ids)

    def propose(self, wanted: Sequence[DraftWanted]) -> list[tuple[int, ...]]:
        return [self._drafts(one) for one in wanted]

    def forget(self, request_id: str) -> None:
        del self.outputs[request_id]

    def _drafts(self, wanted: DraftWanted) -> tuple[int, ...]:
        first = len(wanted.token_ids) - self.prompts[wanted.request_id]
        drafts = self.outputs[wanted.request_id][first : first + wanted.max_drafts]
        beyond = (7,) * (wanted.max_drafts - len(drafts))  # past the end of the output
        return tuple(self.spoil(draft) for draft in drafts + beyond)


def make(oracle: Oracle, *, max_draft_tokens: int = 7, num_blocks: int = 64) -> Harness:
    config = EngineConfig(
        num_blocks=num_blocks,
        block_size=4,
        max_batch_tokens=24,
        max_sequences=4,
        output_quantile=0.0,
        max_draft_tokens=max_draft_tokens,
        max_draft_rows=16,
    )
    return Harness(config, proposer=oracle)


def add(harness: Harness, oracle: Oracle, one: GenerationRequest) -> None:
    oracle.learn(one, harness.expected(one))
    harness.add(one)


def sampling(**changes: object) -> SamplingParams:
    values: dict[str, object] = {"max_tokens": 40, "temperature": 0.0, "ignore_eos": True}
    return SamplingParams(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_right_drafts_make_fewer_steps_of_the_same_output(temperature: float) -> None:
    oracle = Oracle()
    harness = make(oracle)
    one = request("r", (3, 1, 2), sampling=sampling(temperature=temperature, seed=5))
    add(harness, oracle, one)
    assert_same_output(harness.drain()["r"], harness.expected(one))
    assert len(harness.runner.plans) < 10
    stats = harness.log.stats
    assert sum(step.num_sampled_tokens for step in stats) == 40
    assert sum(step.num_accepted_tokens for step in stats) == 40 - len(stats)
    assert not oracle.outputs


def test_without_leave_nothing_is_drafted() -> None:
    oracle = Oracle()
    harness = make(oracle, max_draft_tokens=0)
    add(harness, oracle, request("r", (3, 1, 2), max_tokens=12))
    harness.drain()
    assert len(harness.runner.plans) == 12
    assert sum(step.num_drafted_tokens for step in harness.log.stats) == 0


@pytest.mark.parametrize("seed", range(8))
def test_drafts_right_and_wrong_change_no_output(seed: int) -> None:
    """Chunked prompts, preemption, stop strings, EOS and seeds in one batch."""
    rng = np.random.default_rng(seed)

    def spoil(draft: int) -> int:
        return int(rng.integers(VOCAB_SIZE)) if rng.random() < 0.2 else draft

    oracle = Oracle(spoil)
    harness = make(oracle, num_blocks=int(rng.integers(16, 24)))
    requests = [
        request(
            f"r{idx}",
            tuple(rng.integers(1, 5, size=int(rng.integers(1, 40))).tolist()),
            sampling=sampling(
                max_tokens=int(rng.integers(1, 24)),
                temperature=float(rng.integers(2)),
                seed=idx,
                stop=("cab", "ab ")[: int(rng.integers(3))],
                ignore_eos=bool(rng.integers(2)),
            ),
        )
        for idx in range(10)
    ]
    for one in requests:
        while harness.engine._scheduler.num_waiting > 3:
            harness.step()
        add(harness, oracle, one)
    outcomes = harness.drain()
    for one in requests:
        assert_same_output(outcomes[one.request_id], harness.expected(one))
        timing = outcomes[one.request_id].timing
        assert timing is not None
        assert timing.output_tokens == len(outcomes[one.request_id].token_ids)
    stats = harness.log.stats
    assert 0 < sum(s.num_accepted_tokens for s in stats) < sum(s.num_drafted_tokens for s in stats)
    assert stats[-1].num_used_blocks == 0
    assert not oracle.outputs


def test_an_end_inside_the_drafts_ends_the_output_there() -> None:
    """Drafts past EOS or past a stop string were right too, and count for nothing."""
    for ends in (sampling(ignore_eos=False, max_tokens=400), sampling(stop=("b",))):
        oracle = Oracle()
        harness = make(oracle)
        one = request("r", (3, 1, 2), sampling=ends)
        want = harness.expected(one)
        assert want.finish_reason == "stop"
        blind = request("r", (3, 1, 2), sampling=sampling(max_tokens=400, ignore_eos=True))
        if EOS_TOKEN_ID not in want.token_ids:
            oracle.learn(one, harness.expected(blind))
        else:
            oracle.learn(one, want)
        harness.add(one)
        assert_same_output(harness.drain()["r"], want)
        assert sum(s.num_sampled_tokens for s in harness.log.stats) == len(want.token_ids)


def test_a_proposer_that_fails_costs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    def fail(draft: int) -> int:
        raise RuntimeError("canary 31337")

    oracle = Oracle(fail)
    harness = make(oracle)
    one = request("r", (3, 1, 2), max_tokens=6)
    add(harness, oracle, one)
    assert_same_output(harness.drain()["r"], harness.expected(one))
    assert {record.message for record in caplog.records} == {"no drafts"}
    assert "31337" not in str([vars(record) for record in caplog.records])


def test_logprobs_come_one_for_each_token() -> None:
    for max_draft_tokens in (0, 5):
        oracle = Oracle()
        harness = make(oracle, max_draft_tokens=max_draft_tokens)
        add(harness, oracle, request("quiet", (1, 2), max_tokens=9))
        one = request("r", (3, 1, 2), sampling=sampling(logprobs=2, max_tokens=9))
        add(harness, oracle, one)
        seen: list[TokenLogprobs] = []
        while harness.engine.has_work():
            for delta in harness.step():
                assert len(delta.logprobs) == (
                    len(delta.token_ids) if delta.request_id == "r" else 0
                )
                seen += delta.logprobs
        assert tuple(entry.token_id for entry in seen) == harness.expected(one).token_ids
        assert all(len(entry.top) == 2 for entry in seen)
        assert all(entry.top[0] == (entry.token_id, entry.logprob) for entry in seen)  # greedy
