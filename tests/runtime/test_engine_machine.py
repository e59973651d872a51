"""Whatever is added, aborted and stepped in any order: are blocks, budgets and outputs right?"""

from collections import Counter
from dataclasses import fields

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from runtime import EngineConfig, EngineFull, GenerationRequest, PromptTooLong, SamplingParams
from runtime.observer import ScheduleStats
from runtime.plan import StepPlan
from runtime.sequence import Sequence, SequenceStatus
from tests.runtime.harness import Harness, Outcome, assert_same_output
from tests.support.fake_runner import VOCAB_SIZE

SAMPLING = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 20),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.none() | st.integers(-3, 3).filter(lambda seed: seed >= 0),
    stop=st.lists(st.sampled_from(["ab", "abc", "ca", "x"]), max_size=2).map(tuple),
    ignore_eos=st.booleans(),
)
# Prefixes of one text, some with an end of their own: most requests share blocks.
PROMPTS = st.builds(
    lambda num_tokens, tail: tuple(1 + idx % 7 for idx in range(num_tokens)) + tail,
    st.integers(1, 16),
    st.just(()) | st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=4).map(tuple),
)


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        block_size=st.integers(1, 5),
        num_blocks=st.integers(3, 12),
        max_sequences=st.integers(1, 5),
        spare_tokens=st.integers(1, 9),
        prefix_cache=st.booleans(),
        output_quantile=st.sampled_from([0.0, 0.9, 1.0]),
        max_overtakes=st.integers(1, 5),
        max_prefix_wait_steps=st.integers(0, 8),
        max_draft_tokens=st.sampled_from([0, 3]),
    )
    def start(
        self,
        block_size: int,
        num_blocks: int,
        max_sequences: int,
        spare_tokens: int,
        prefix_cache: bool,
        output_quantile: float,
        max_overtakes: int,
        max_prefix_wait_steps: int,
        max_draft_tokens: int,
    ) -> None:
        self.config = EngineConfig(
            block_size=block_size,
            num_blocks=num_blocks,
            max_sequences=max_sequences,
            max_batch_tokens=max_sequences + spare_tokens,
            max_waiting=6,
            prefix_cache=prefix_cache,
            output_quantile=output_quantile,
            max_overtakes=max_overtakes,
            max_prefix_wait_steps=max_prefix_wait_steps,
            max_draft_tokens=max_draft_tokens,
            max_draft_rows=12,
        )
        self.harness = Harness(self.config)
        self.requests: dict[str, GenerationRequest] = {}
        self.all_sequences: list[Sequence] = []
        self.wants: dict[str, Outcome] = {}
        self.aborted: set[str] = set()
        self.failed: set[str] = set()
        self.harness.runner.before_run = self.check_writes

    @rule(
        prompts=st.lists(PROMPTS, min_size=1, max_size=4),
        sampling=SAMPLING,
        salt=st.sampled_from([b"", b"other"]),
        priority=st.integers(-1, 1),
    )
    def add(
        self,
        prompts: list[tuple[int, ...]],
        sampling: SamplingParams,
        salt: bytes,
        priority: int,
    ) -> None:
        for prompt in prompts:
            self.add_one(prompt, sampling, salt, priority)

    def add_one(
        self, prompt: tuple[int, ...], sampling: SamplingParams, salt: bytes, priority: int
    ) -> None:
        request = GenerationRequest(
            request_id=f"r{len(self.requests)}",
            prompt_token_ids=prompt,
            sampling=sampling,
            cache_salt=salt,
            tenant=salt.decode(),
            priority=priority,
            arrival_ns=0,
        )
        try:
            self.harness.add(request)
        except PromptTooLong:
            assert len(prompt) >= self.config.num_blocks * self.config.block_size
        except EngineFull:
            assert self.harness.engine._scheduler.num_waiting >= self.config.max_waiting
        else:
            self.requests[request.request_id] = request
            self.all_sequences.append(self.sequences()[-1])
            self.wants[request.request_id] = self.harness.expected(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        if self.harness.outcomes[request_id].finish_reason is None:
            self.aborted.add(request_id)
        num_running = self.harness.engine._scheduler.num_running
        self.harness.engine.abort(request_id)
        self.harness.engine.abort(request_id)
        assert self.harness.engine._scheduler.num_running >= num_running - 1
        assert request_id not in {s.request.request_id for s in self.sequences()}

    @rule(num_steps=st.integers(1, 12))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.harness.step()

    @rule()
    def failing_step(self) -> None:
        """A step whose runner fails after it has written nonsense to the plan's slots."""

        def fail(plan: StepPlan) -> None:
            self.harness.runner.scribble(plan)
            raise RuntimeError("out of order")

        self.harness.runner.before_run = fail
        deltas = self.harness.step()
        self.harness.runner.before_run = self.check_writes
        self.failed |= {delta.request_id for delta in deltas} - self.aborted

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.drain(max_steps=2_000)
            self.every_block_is_free_or_held()
            self.outputs_are_those_of_a_lone_request()

    def sequences(self) -> list[Sequence]:
        return [live.sequence for live in self.harness.engine._live.values()]

    def check_writes(self, plan: StepPlan) -> None:
        """Nobody writes where somebody else reads or a key leads to; nobody exceeds the budget."""
        assert plan.num_tokens <= self.config.max_batch_tokens
        assert plan.num_sequences <= self.config.max_sequences
        pool = self.harness.engine._scheduler.kv.pool
        for block_id in set((plan.slot_mapping // self.config.block_size).tolist()):
            assert pool.ref_count(block_id) == 1
            assert not pool.is_keyed(block_id)

    @invariant()
    def every_block_is_free_or_held(self) -> None:
        if not hasattr(self, "harness"):
            return
        pool = self.harness.engine._scheduler.kv.pool
        held = Counter(
            int(block_id) for sequence in self.sequences() for block_id in sequence.block_table.ids
        )
        for block_id in range(pool.num_blocks):
            assert pool.ref_count(block_id) == held[block_id]
        assert set(pool._free).isdisjoint(held)
        assert not any(pool.is_keyed(block_id) for block_id in pool._free)
        assert len(set(pool._free)) == pool.num_free
        assert pool.num_free + pool.num_cached + pool.num_used == pool.num_blocks
        assert pool.num_used == len(held)
        assert pool.num_used == 0 or self.harness.engine.has_work()
        for sequence in self.sequences():
            assert (len(sequence.block_table) > 0) == (sequence.status is SequenceStatus.RUNNING)

    @invariant()
    def the_queue_and_the_waits_are_consistent(self) -> None:
        if not hasattr(self, "harness"):
            return
        entrance = self.harness.engine._scheduler._entrance
        in_flight = self.harness.engine._scheduler.kv.in_flight
        waiting = [s for s in self.sequences() if s.status is SequenceStatus.WAITING]
        candidates = list(entrance._waiting.candidates())
        assert len(candidates) == len(entrance) == len(waiting)
        assert set(candidates) == set(waiting)
        assert {s for s in waiting if s.awaited_key} == set(entrance._awaiting)
        leaders = set(in_flight._leaders.values())
        assert all(leader.status is SequenceStatus.RUNNING for leader in leaders)
        for leader in leaders:
            salts = {
                s.request.cache_salt
                for s in waiting
                if s.awaited_key and in_flight.leader(s.awaited_key) is leader
            }
            assert salts <= {leader.request.cache_salt}
        if stats := self.harness.log.stats:
            why = stats[-1].schedule
            assert why.num_decode_tokens + why.num_prefill_tokens == stats[-1].num_batch_tokens
            assert min(vars_of(why).values()) >= 0
            assert not why.num_preempted or why.num_admitted == why.num_resumed == 0

    @invariant()
    def every_prompt_token_is_looked_up_once(self) -> None:
        if not hasattr(self, "harness"):
            return
        stats = [step.schedule for step in self.harness.log.stats]
        started = [
            self.requests[s.request.request_id]
            for s in self.all_sequences
            if s.cached_tokens is not None
        ]
        assert sum(step.num_admitted for step in stats) == len(started)
        assert sum(step.num_prompt_tokens for step in stats) == sum(
            len(one.prompt_token_ids) for one in started
        )
        assert sum(step.num_cached_tokens for step in stats) == sum(
            s.cached_tokens or 0 for s in self.all_sequences
        )

    @invariant()
    def outputs_are_those_of_a_lone_request(self) -> None:
        if not hasattr(self, "harness"):
            return
        for request_id, want in self.wants.items():
            got = self.harness.outcomes[request_id]
            if request_id in self.aborted or request_id in self.failed:
                reason = "abort" if request_id in self.aborted else "error"
                assert got.finish_reason in (None, reason)
                assert got.token_ids == want.token_ids[: len(got.token_ids)]
                assert want.text.startswith(got.text)
            elif got.finish_reason is not None:
                assert_same_output(got, want)


def vars_of(stats: ScheduleStats) -> dict[str, float]:
    return {field.name: getattr(stats, field.name) for field in fields(stats)}


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, print_blob=True
)
