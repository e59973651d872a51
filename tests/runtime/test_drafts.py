"""Do right, wrong and superfluous drafts all give the text that no drafts give?"""

from collections.abc import Sequence as Rows

import numpy as np
import pytest

from runtime import EngineConfig, InvariantBroken
from runtime.plan_builder import ScheduledRow
from runtime.sampler import SampleRow
from runtime.scheduler import ScheduledStep, Scheduler
from runtime.sequence import Sequence
from tests.runtime.harness import request
from tests.support.fake_runner import VOCAB_SIZE, FakeRunner, FakeSampler, reference_tokens

SEED = 3


def make(
    *, num_blocks: int = 64, block_size: int = 4, max_batch_tokens: int = 32
) -> tuple[Scheduler, FakeRunner]:
    config = EngineConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch_tokens=max_batch_tokens,
        max_sequences=4,
    )
    return Scheduler(config), FakeRunner(num_blocks=num_blocks, block_size=block_size)


def make_sequence(name: str, prompt: tuple[int, ...], *, max_tokens: int = 12) -> Sequence:
    one = request(name, prompt, max_tokens=max_tokens)
    return Sequence(one, rng_seed=SEED, max_output_tokens=max_tokens)


def reference(sequence: Sequence) -> list[int]:
    one = sequence.request
    return reference_tokens(
        one.prompt_token_ids, one.sampling, rng_seed=SEED, max_tokens=sequence.max_output_tokens
    )


def accept(row: ScheduledRow, sampled: Rows[int]) -> list[int]:
    """What a lossless acceptance keeps: up to the first token that its draft did not foresee."""
    new = list(sampled[:1])
    for draft, token_id in zip(row.draft_token_ids, sampled[1:], strict=True):
        if new[-1] != draft:
            break
        new.append(token_id)
    return new


def run(scheduler: Scheduler, runner: FakeRunner, step: ScheduledStep) -> None:
    rows = [
        SampleRow(
            params=row.sequence.request.sampling,
            rng_seed=row.sequence.rng_seed,
            step=row.sequence.num_output_tokens + idx,
        )
        for row in step.sampled
        for idx in range(1 + len(row.draft_token_ids))
    ]
    logits = runner.run(step.plan)
    assert len(logits) == len(rows)
    sampled = iter(FakeSampler().sample(logits, rows))
    new_token_ids = [
        accept(row, [next(sampled) for _ in range(1 + len(row.draft_token_ids))])
        for row in step.sampled
    ]
    scheduler.commit(step, new_token_ids)
    for row in step.sampled:
        if row.sequence.num_output_tokens >= row.sequence.max_output_tokens:
            scheduler.finish(row.sequence)


def test_right_drafts_save_steps() -> None:
    scheduler, runner = make()
    sequence = make_sequence("r", (1, 2, 3))
    want = reference(sequence)
    scheduler.add(sequence)
    while step := scheduler.schedule():
        run(scheduler, runner, step)
        done = sequence.num_output_tokens
        sequence.draft_token_ids = tuple(want[done : done + 3])
    assert sequence.token_ids[3:] == want
    assert [plan.num_tokens for plan in runner.plans] == [3, 4, 4, 3]
    assert [len(plan.logits_rows) for plan in runner.plans] == [1, 4, 4, 3]


@pytest.mark.parametrize("seed", range(10))
def test_any_drafts_give_the_same_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scheduler, runner = make(
        num_blocks=int(rng.integers(8, 14)),
        block_size=int(rng.integers(1, 5)),
        max_batch_tokens=int(rng.integers(5, 20)),
    )
    prompts = [tuple(rng.integers(0, VOCAB_SIZE, size=3).tolist()) for _ in range(12)]
    sequences = [
        make_sequence(f"r{idx}", prompt, max_tokens=int(rng.integers(1, 6)))
        for idx, prompt in enumerate(prompts)
    ]
    wants = [reference(sequence) for sequence in sequences]
    for sequence in sequences:
        scheduler.add(sequence)
    while step := scheduler.schedule():
        assert step.plan.num_tokens <= 20
        run(scheduler, runner, step)
        for sequence, want in zip(sequences, wants, strict=True):
            guess = want[sequence.num_output_tokens :][: int(rng.integers(0, 5))]
            flips = rng.random(len(guess)) < 0.3
            sequence.draft_token_ids = tuple(
                (token_id + int(flip)) % VOCAB_SIZE
                for token_id, flip in zip(guess, flips, strict=True)
            )
    for sequence, want in zip(sequences, wants, strict=True):
        assert sequence.token_ids[3:] == want
    assert scheduler.kv.pool.num_used == 0


def test_no_key_leads_to_a_rejected_draft() -> None:
    scheduler, runner = make(block_size=2)
    sequence = make_sequence("r", (1, 2, 3), max_tokens=9)
    want = reference(sequence)
    scheduler.add(sequence)
    for _ in range(3):
        step = scheduler.schedule()
        assert step is not None
        run(scheduler, runner, step)
        wrong = (want[sequence.num_output_tokens] + 1) % VOCAB_SIZE
        sequence.draft_token_ids = (wrong,) * 4
        pool = scheduler.kv.pool
        keyed = sum(pool.is_keyed(int(block_id)) for block_id in sequence.block_table.ids)
        assert keyed == sequence.num_computed_tokens // 2
        assert sequence.num_uncomputed_tokens == 1


def test_new_tokens_that_are_not_the_drafts_are_refused() -> None:
    scheduler, runner = make()
    sequence = make_sequence("r", (1, 2, 3))
    scheduler.add(sequence)
    step = scheduler.schedule()
    assert step is not None
    run(scheduler, runner, step)
    sequence.draft_token_ids = (1, 2)
    step = scheduler.schedule()
    assert step is not None
    with pytest.raises(InvariantBroken):
        scheduler.commit(step, [(2, 2)])
    with pytest.raises(InvariantBroken):
        scheduler.commit(step, [])


def test_a_row_that_sits_the_step_out_computes_its_last_token_again() -> None:
    scheduler, runner = make()
    sequence = make_sequence("r", (1, 2, 3))
    scheduler.add(sequence)
    step = scheduler.schedule()
    assert step is not None
    scheduler.commit(step, [()])
    assert (sequence.num_tokens, sequence.num_uncomputed_tokens) == (3, 1)
    step = scheduler.schedule()
    assert step is not None
    run(scheduler, runner, step)
    sequence.draft_token_ids = (1, 2)
    step = scheduler.schedule()
    assert step is not None
    scheduler.commit(step, [()])
    assert (sequence.num_tokens, sequence.num_uncomputed_tokens) == (4, 1)
