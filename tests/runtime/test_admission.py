"""Is the peak exact, is a shared block counted once, and does what was let in also fit?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.admission import OutputHistory, owned_blocks, peak_blocks
from runtime.sequence import Sequence
from tests.runtime.harness import PATIENT, request
from tests.runtime.simulation import Simulation

LIVES = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 2), st.integers(1, 40), st.integers(0, 6)),
    min_size=1,
    max_size=6,
)


def peak_of(lives: list[tuple[int, int, int, int]], block_size: int) -> int:
    """Lives are (tokens, blocks beyond those tokens need, tokens to come, delay)."""
    tokens, spare, remaining, delay = (
        np.array(column, np.int64) for column in zip(*lives, strict=True)
    )
    held = -(-tokens // block_size) + spare
    return peak_blocks(
        num_tokens=tokens,
        num_blocks=held,
        num_owned=held,
        remaining=remaining,
        delay=delay,
        block_size=block_size,
    )


def simulated_peak(lives: list[tuple[int, int, int, int]], block_size: int) -> int:
    """Step by step: each generates its first token after ``delay`` steps and stores all but one."""
    peak = 0
    for step in range(1, 100):
        held = 0
        for tokens, spare, remaining, delay in lives:
            if step > remaining + delay:
                continue
            stored = tokens + max(0, step - delay - 1)
            held += max(-(-stored // block_size), -(-tokens // block_size) + spare)
        peak = max(peak, held)
    return peak


@PATIENT
@given(lives=LIVES, block_size=st.integers(1, 5))
def test_the_peak_is_that_of_a_simulation(
    lives: list[tuple[int, int, int, int]], block_size: int
) -> None:
    at_once = [(tokens, spare, remaining, 0) for tokens, spare, remaining, _ in lives]
    assert peak_of(at_once, block_size) == simulated_peak(at_once, block_size)


@PATIENT
@given(lives=LIVES, block_size=st.integers(1, 5), data=st.data())
def test_whoever_starts_sooner_than_expected_takes_no_more(
    lives: list[tuple[int, int, int, int]], block_size: int, data: st.DataObject
) -> None:
    actual = [
        (tokens, spare, remaining, data.draw(st.integers(0, delay)))
        for tokens, spare, remaining, delay in lives
    ]
    assert simulated_peak(actual, block_size) <= peak_of(lives, block_size)


@PATIENT
@given(
    tables=st.lists(st.lists(st.integers(0, 15), unique=True), min_size=1, max_size=5),
    data=st.data(),
)
def test_a_shared_block_is_freed_by_its_last_holder(
    tables: list[list[int]], data: st.DataObject
) -> None:
    ends = data.draw(st.permutations(range(len(tables))))
    owned = owned_blocks(
        [np.array(table, np.int32) for table in tables], np.array(ends), pool_blocks=16
    )
    assert owned.sum() == len({block_id for table in tables for block_id in table})
    for b, table in enumerate(tables):
        outlived = {x for c, other in enumerate(tables) if ends[c] > ends[b] for x in other}
        assert owned[b] == len(set(table) - outlived)


def make_sequence(*, max_tokens: int, num_output: int = 0) -> Sequence:
    one = Sequence(request("r", (1,) * 8), rng_seed=0, max_output_tokens=max_tokens)
    one.token_ids += [1] * num_output
    return one


def test_outputs_are_expected_to_be_like_recent_ones() -> None:
    history = OutputHistory(quantile=0.9)
    for _ in range(300):
        history.record(2000)
    for _ in range(300):
        history.record(100)
        history.record(30)
    long = make_sequence(max_tokens=4000)
    assert 100 <= history.expected_tokens(long) <= 120
    assert history.expected_tokens(make_sequence(max_tokens=50)) == 50
    # One that is longer already is like the longer ones.
    assert history.expected_tokens(make_sequence(max_tokens=4000, num_output=300)) > 1000
    # One that was preempted is taken to double its output, then to do so again.
    long.token_ids += [1] * 90
    for num_preemptions, want in ((1, 90), (2, 180), (3, 360), (30, 3910)):
        long.num_preemptions = num_preemptions
        assert history.expected_tokens(long) == want


@pytest.mark.parametrize(("quantile", "want"), [(1.0, 4000), (0.0, 1)])
def test_the_extremes_ask_no_history(quantile: float, want: int) -> None:
    history = OutputHistory(quantile=quantile)
    history.record(77)
    assert history.expected_tokens(make_sequence(max_tokens=4000)) == want


@PATIENT
@given(
    lengths=st.lists(st.integers(0, 1 << 22), max_size=30),
    done=st.integers(0, 5000),
    left=st.integers(1, 5000),
)
def test_an_expectation_is_within_its_bounds(lengths: list[int], done: int, left: int) -> None:
    history = OutputHistory(quantile=0.9)
    for length in lengths:
        history.record(length)
    one = make_sequence(max_tokens=done + left, num_output=done)
    assert 1 <= history.expected_tokens(one) <= left


def crowd(sim: Simulation, rng: np.random.Generator, *, num_requests: int = 60) -> None:
    shared = tuple(range(1, 200))
    for idx in range(num_requests):
        head = shared[: int(rng.choice([0, 0, 64, 150]))]
        own = tuple((1000 * (idx + 1) + np.arange(int(rng.integers(1, 120)))).tolist())
        max_tokens = int(rng.integers(1, 200))
        sim.arrive(0.03 * idx * float(rng.integers(0, 2)), head + own, max_tokens=max_tokens)


@pytest.mark.parametrize("seed", range(3))
def test_with_known_lengths_nobody_is_ever_preempted_and_the_pool_is_used(seed: int) -> None:
    sim = Simulation(num_blocks=96, max_sequences=24, output_quantile=1.0)
    crowd(sim, np.random.default_rng(seed))
    stats = sim.run()
    assert sum(step.num_preempted for step in stats) == 0
    assert any(step.num_waiting_for_blocks for step in stats)
    assert sim.scheduler.kv.pool.num_used == 0
    # Whole reservations of prompt and output would hold fewer sequences at once.
    num_running = max(len(step.rows) for _, step in sim.steps)
    by_size = sorted(
        -(-(len(one.sequence.request.prompt_token_ids) + one.sequence.max_output_tokens) // 16)
        for one in sim.clients
    )
    assert num_running > 96 // np.median(by_size)


@pytest.mark.parametrize("seed", range(3))
def test_preemption_is_one_wave_and_lets_nobody_in(seed: int) -> None:
    sim = Simulation(num_blocks=64, max_sequences=24, output_quantile=0.0)
    crowd(sim, np.random.default_rng(seed))
    stats = sim.run()
    assert sum(step.num_preempted for step in stats) > 0
    for step in stats:
        assert not step.num_preempted or step.num_admitted == step.num_resumed == 0
    # A sequence that was preempted comes back only when it can stay: it is not tossed about.
    assert max(client.sequence.num_preemptions for client in sim.clients) <= 3


def test_a_shared_prefix_lets_many_in_where_copies_would_not_fit() -> None:
    sim = Simulation(num_blocks=64 + 8 * 4, output_quantile=1.0)
    for idx in range(8):
        own = tuple(range(5000 * (idx + 1), 5000 * (idx + 1) + 16))
        sim.arrive(0, (*range(1, 1025), *own), max_tokens=32)
    sim.run()
    assert max(len(step.rows) for _, step in sim.steps) >= 7


def test_a_sequence_that_ends_soon_makes_room_for_one_that_comes_now() -> None:
    """They would not fit at their ends together, but are never at their ends together."""
    sim = Simulation(num_blocks=10, output_quantile=1.0)
    sim.arrive(0, 79, max_tokens=8)
    late = sim.arrive(0.001, 16, max_tokens=80)
    sim.run()
    starts = [step for _, step in sim.steps if any(r.sequence is late.sequence for r in step.rows)]
    assert len(starts[0].rows) == 2


def test_when_nothing_runs_the_next_starts_whatever_is_expected() -> None:
    sim = Simulation(num_blocks=8, output_quantile=1.0)
    sim.arrive(0, 100, max_tokens=1000, num_output=20)
    sim.arrive(0, 100, max_tokens=1000, num_output=20)
    stats = sim.run()
    assert sum(step.num_admitted for step in stats) == 2


def test_a_misjudged_crowd_still_runs_side_by_side() -> None:
    """Bounds of the whole pool are no reason to run one at a time after a preemption."""
    sim = Simulation(num_blocks=64, output_quantile=0.0)
    for _ in range(24):
        sim.arrive(0, 48, max_tokens=900, num_output=150)
    stats = sim.run()
    assert sum(step.num_preempted for step in stats) > 0
    assert np.mean([step.num_decode_tokens for step in stats]) > 3
