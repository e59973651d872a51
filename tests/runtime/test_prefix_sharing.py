"""Is a prefix that many ask for at once computed once, and never waited for in vain?"""

import numpy as np
import pytest

from runtime import EngineConfig
from runtime.plan import StepPlan
from runtime.sequence import SequenceStatus
from runtime.step_cost import StepCostModel
from tests.runtime.harness import Harness, assert_same_output, request
from tests.runtime.simulation import Simulation
from tests.support.fake_runner import VOCAB_SIZE

SHARED = tuple(range(7, 7 + 1024))


class DearSteps(StepCostModel):
    """So dear that no prompt is better left for the next one."""

    @property
    def overhead_tokens(self) -> float:
        return 1e9


def tail(idx: int, num_tokens: int = 20) -> tuple[int, ...]:
    return tuple(100_000 + 1_000 * idx + offset for offset in range(num_tokens))


@pytest.mark.parametrize(("max_batch_tokens", "num_waiting"), [(512, 0), (1000, 7)])
def test_eight_requests_compute_a_new_prefix_once(max_batch_tokens: int, num_waiting: int) -> None:
    """With 512 the first takes each step for itself, with 1,000 it leaves most of the second."""
    sim = Simulation(max_batch_tokens=max_batch_tokens)
    for idx in range(8):
        sim.arrive(0, SHARED + tail(idx), max_tokens=1)
    stats = sim.run()
    assert sim.num_computed_tokens == 1024 + 8 * 20
    assert sum(step.num_deduped_tokens for step in stats) == 7 * 1024
    assert max(step.num_waiting_for_prefix for step in stats) == num_waiting
    assert sum(step.num_prompt_tokens for step in stats) == 8 * 1044
    assert sum(step.num_cached_tokens for step in stats) == 7 * 1024


def test_requests_that_come_while_the_prefix_is_computed_share_it_too() -> None:
    sim = Simulation(max_batch_tokens=128)
    for idx in range(8):
        sim.arrive(0.03 * idx, SHARED + tail(idx), max_tokens=1)
    sim.run()
    assert sim.num_computed_tokens == 1024 + 8 * 20


def test_a_tree_of_prefixes_is_computed_once_branch_by_branch() -> None:
    sim = Simulation()
    branches = [SHARED[:512] + tail(branch, 256) for branch in range(3)]
    for idx in range(12):
        sim.arrive(0, branches[idx % 3] + tail(10 + idx), max_tokens=1)
    sim.run()
    assert sim.num_computed_tokens == 512 + 3 * 256 + 12 * 20


def test_nobody_waits_for_another_tenants_prefix() -> None:
    sim = Simulation()
    for idx in range(4):
        sim.arrive(0, SHARED + tail(idx), max_tokens=1, salt=bytes([idx]))
    stats = sim.run()
    assert sim.num_computed_tokens == 4 * 1044
    assert not any(step.num_waiting_for_prefix or step.num_cached_tokens for step in stats)


def test_a_small_common_part_is_computed_rather_than_waited_for() -> None:
    sim = Simulation(max_batch_tokens=1024)
    sim.scheduler.cost = DearSteps()
    for idx in range(4):
        sim.arrive(0, SHARED[:32] + tail(idx, 200), max_tokens=1)
    stats = sim.run()
    assert not any(step.num_waiting_for_prefix for step in stats)
    # The 32 tokens are two blocks; three copies are given up for the first.
    assert sim.scheduler.kv.num_merged_blocks == 3 * 2


def test_others_go_by_while_some_wait_for_a_prefix() -> None:
    sim = Simulation(max_batch_tokens=128)
    leader = sim.arrive(0, SHARED + tail(0), max_tokens=1)
    follower = sim.arrive(0, SHARED + tail(1), max_tokens=1)
    other = sim.arrive(0, tail(2, 40), max_tokens=1)
    sim.run()
    assert other.token_s[0] < leader.token_s[0] < follower.token_s[0]


def test_a_follower_lends_the_leader_its_priority() -> None:
    sim = Simulation(max_batch_tokens=128)
    sim.arrive(0, SHARED + tail(0), max_tokens=1, priority=-1)
    follower = sim.arrive(0.001, SHARED + tail(1), max_tokens=1, priority=1)
    rival = sim.arrive(0.001, tail(2, 600), max_tokens=1, priority=0)
    sim.run()
    assert follower.token_s[0] < rival.token_s[0]
    assert sim.num_computed_tokens == 1024 + 2 * 20 + 600


@pytest.mark.parametrize("max_wait_steps", [0, 3])
def test_a_wait_ends_after_so_many_steps(max_wait_steps: int) -> None:
    """The leader's steps never end here, so what it promised never comes."""
    sim = Simulation(max_batch_tokens=4096, max_prefix_wait_steps=max_wait_steps)
    sim.scheduler.cost = DearSteps()
    clients = [sim.arrive(0, SHARED + tail(idx), max_tokens=1) for idx in range(2)]
    for client in clients:
        sim.scheduler.add(client.sequence)
    nums_rows = []
    for _ in range(max_wait_steps + 1):
        step = sim.scheduler.schedule()
        assert step is not None
        nums_rows.append(len(step.rows))
    assert nums_rows == [1] * max_wait_steps + [2]


def make_harness(*, max_prefix_wait_steps: int = 256) -> Harness:
    config = EngineConfig(
        num_blocks=64,
        block_size=4,
        max_batch_tokens=8,
        max_sequences=4,
        max_prefix_wait_steps=max_prefix_wait_steps,
    )
    return Harness(config)


def real_prompt(num_tokens: int, last: int) -> tuple[int, ...]:
    return (*(1 + idx % (VOCAB_SIZE - 1) for idx in range(num_tokens - 1)), last)


@pytest.mark.parametrize("end", ["abort", "failure"])
def test_a_leader_that_goes_leaves_the_prefix_to_the_next(end: str) -> None:
    harness = make_harness()
    requests = [request(name, real_prompt(40, idx + 1)) for idx, name in enumerate("abc")]
    for one in requests:
        harness.add(one)
    harness.step()
    if end == "abort":
        harness.engine.abort("a")
    else:

        def fail(plan: StepPlan) -> None:
            harness.runner.scribble(plan)
            raise RuntimeError("out of order")

        harness.runner.before_run = fail
        harness.step()
        harness.runner.before_run = lambda _plan: None
    outcomes = harness.drain()
    for one in requests[1:]:
        assert_same_output(outcomes[one.request_id], harness.expected(one))
    # b goes on where a's finished blocks end, c waits for b.
    timings = {name: outcomes[name].timing for name in "bc"}
    assert [timing.cached_tokens for timing in timings.values() if timing] == [8, 36]


def test_an_aborted_follower_leaves_nothing_behind() -> None:
    harness = make_harness()
    for idx, name in enumerate("ab"):
        harness.add(request(name, real_prompt(40, idx + 1)))
    harness.step()
    harness.engine.abort("b")
    harness.drain()
    assert harness.engine._scheduler.kv.pool.num_used == 0
    assert len(harness.engine._scheduler.kv.in_flight) == 0


def test_equal_outputs_are_held_once() -> None:
    """Two equal greedy requests: the second follows the first and ends up in its very blocks."""
    harness = make_harness(max_prefix_wait_steps=0)
    for name in "ab":
        harness.add(request(name, real_prompt(6, 1), max_tokens=30))
    for _ in range(20):
        harness.step()
    tables = [live.sequence.block_table.ids.tolist() for live in harness.engine._live.values()]
    assert harness.engine._live["a"].sequence.status is SequenceStatus.RUNNING
    assert len(set(tables[0]) & set(tables[1])) >= 4
    assert harness.engine._scheduler.kv.num_merged_blocks >= 4
    outcomes = harness.drain()
    assert outcomes["a"].token_ids == outcomes["b"].token_ids


def test_what_the_queue_will_find_is_evicted_last() -> None:
    """A cached prompt asked for again survives a stream of others; unasked it would not."""

    def cached_tokens(*, is_announced: bool) -> int:
        sim = Simulation(num_blocks=40, max_sequences=2, max_batch_tokens=64)
        sim.arrive(0, SHARED[:320], max_tokens=1)
        sim.run()
        at_s = sim.now_s + 0.001
        for idx in range(12):
            sim.arrive(at_s, tail(idx, 100), max_tokens=1)
        late = at_s if is_announced else at_s + 10
        again = sim.arrive(late, SHARED[:320], max_tokens=1)
        sim.run()
        return again.sequence.cached_tokens or 0

    assert cached_tokens(is_announced=True) == 304
    assert cached_tokens(is_announced=False) < 304


def test_hits_and_misses_add_up_over_any_history() -> None:
    rng = np.random.default_rng(5)
    sim = Simulation(num_blocks=48, max_sequences=6, max_batch_tokens=96, output_quantile=0.0)
    for idx in range(60):
        head = SHARED[: int(rng.integers(0, 400))]
        sim.arrive(0.001 * idx, head + tail(idx, int(rng.integers(1, 60))), max_tokens=100)
    stats = sim.run()
    assert sum(step.num_preempted for step in stats) > 0
    assert sum(step.num_resumed for step in stats) == sum(step.num_preempted for step in stats)
    assert sum(step.num_admitted for step in stats) == 60
    prompts = sum(len(client.sequence.request.prompt_token_ids) for client in sim.clients)
    assert sum(step.num_prompt_tokens for step in stats) == prompts
    hits = sum(client.sequence.cached_tokens or 0 for client in sim.clients)
    assert sum(step.num_cached_tokens for step in stats) == hits
