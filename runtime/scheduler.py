"""Which tokens of which sequences does the next step compute?

Every sequence wants the same thing, its uncomputed tokens computed, and every step has one budget
of tokens. Sequences with a single uncomputed token go first, since somebody is reading their
output as it comes; the rest of the budget goes to longer stretches in order of arrival, in chunks.

When blocks run out the youngest running sequence is preempted: it gives back its blocks, keeps its
tokens and waits at the head of the queue to be computed again. Every waiting sequence is younger
than every running one, so the oldest of all always runs, and as each fits the cache alone there is
always one that advances.
"""

from collections import deque
from collections.abc import Sequence as Rows
from dataclasses import dataclass

from runtime.config import EngineConfig
from runtime.errors import InvariantBroken
from runtime.kvcache.manager import KVCacheManager
from runtime.plan import StepPlan
from runtime.plan_builder import ScheduledRow, build_plan
from runtime.sequence import Sequence, SequenceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStep:
    """A plan and the sequences it belongs to; ``rows[b]`` is sequence ``b`` of the plan."""

    plan: StepPlan
    rows: tuple[ScheduledRow, ...]
    sampled: tuple[ScheduledRow, ...]  # in the order of ``plan.logits_rows``, 1 + drafts each
    num_preempted: int


class Scheduler:
    """Queues, the token budget and preemption; touches no tensor and reads no clock."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._waiting: deque[Sequence] = deque()  # both oldest first
        self._running: list[Sequence] = []
        self.kv = KVCacheManager(config)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence younger than all others, that fits the cache when it runs alone."""
        self._waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Take a waiting or running sequence out and its blocks back, for whatever reason."""
        queue = self._running if sequence.status is SequenceStatus.RUNNING else self._waiting
        queue.remove(sequence)
        self.kv.release(sequence)
        sequence.finish()

    def schedule(self) -> ScheduledStep | None:
        """The next step, or None when there is nothing to do; ``commit`` it once it has run.

        Raises: InvariantBroken when there is work and none of it can advance.
        """
        rows, num_preempted = self._schedule_single_tokens()
        budget = self._config.max_batch_tokens - sum(row.num_planned_tokens for row in rows)
        for sequence in self._running:
            if budget > 0 and sequence.num_uncomputed_tokens > 1:
                rows.append(_chunk(sequence, budget))
                budget -= rows[-1].num_tokens
        while budget > 0 and (admitted := self._admit_next()) is not None:
            rows.append(_chunk(admitted, budget))
            budget -= rows[-1].num_tokens
        if not rows:
            if self._waiting or self._running:
                raise InvariantBroken("schedule: no sequence can advance")
            return None
        return ScheduledStep(
            plan=build_plan(rows, block_size=self._config.block_size),
            rows=tuple(rows),
            sampled=tuple(row for row in rows if row.is_sampled),
            num_preempted=num_preempted,
        )

    def commit(self, step: ScheduledStep, new_token_ids: Rows[Rows[int]]) -> None:
        """The step has run: its tokens are computed, and each sampled row goes on with new ones.

        ``new_token_ids[i]`` of ``step.sampled[i]``: the accepted prefix of its drafts, then the
        one token that no draft stood for; appended here. What was computed of rejected drafts is
        never counted, so the next step overwrites it and no key ever leads to it. A sequence that
        finished while the step ran is passed over.

        Raises: InvariantBroken when new tokens contradict the drafts they were computed with.
        """
        if len(new_token_ids) != len(step.sampled):
            raise InvariantBroken("commit: one list of new tokens is due for each sampled row")
        nums_accepted: dict[Sequence, int] = {}
        for row, token_ids in zip(step.sampled, new_token_ids, strict=True):
            num_accepted = len(token_ids) - 1
            if num_accepted < 0 or tuple(token_ids[:-1]) != row.draft_token_ids[:num_accepted]:
                raise InvariantBroken("commit: the new tokens do not continue the drafts")
            nums_accepted[row.sequence] = num_accepted
            row.sequence.token_ids.extend(token_ids)
        for row in step.rows:
            if row.sequence.status is SequenceStatus.RUNNING:
                num_tokens = row.num_tokens + nums_accepted.get(row.sequence, 0)
                self.kv.commit(row.sequence, num_tokens=num_tokens)

    def _schedule_single_tokens(self) -> tuple[list[ScheduledRow], int]:
        """Rows of one token, oldest first, and how many younger sequences made room for them.

        A victim is younger than the sequence it makes room for, so it has no row yet.
        """
        decoding: list[Sequence] = []
        num_preempted = 0
        for sequence in tuple(self._running):
            if sequence.num_uncomputed_tokens != 1:  # a victim has lost its computed tokens
                continue
            while sequence.status is SequenceStatus.RUNNING and not self.kv.grow(sequence):
                self._preempt_youngest()
                num_preempted += 1
            if sequence.status is SequenceStatus.RUNNING:
                decoding.append(sequence)
        spare_tokens = self._config.max_batch_tokens - len(decoding) - 1  # a prefill gets one
        rows: list[ScheduledRow] = []
        for sequence in decoding:
            drafts = self._take_drafts(sequence, spare_tokens)
            spare_tokens -= len(drafts)
            rows.append(ScheduledRow(sequence=sequence, num_tokens=1, draft_token_ids=drafts))
        return rows, num_preempted

    def _take_drafts(self, sequence: Sequence, spare_tokens: int) -> tuple[int, ...]:
        """As many drafts as the budget, the output's bound and the blocks at hand allow."""
        proposed, sequence.draft_token_ids = sequence.draft_token_ids, ()
        if not proposed:
            return ()
        num_due = sequence.max_output_tokens - sequence.num_output_tokens
        drafts = proposed[: max(0, min(spare_tokens, num_due - 1))]
        if not self.kv.grow(sequence, num_drafts=len(drafts)):
            drafts = drafts[: self.kv.num_spare_slots(sequence)]
        return drafts

    def _preempt_youngest(self) -> None:
        victim = self._running.pop()
        self.kv.release(victim)
        victim.preempt()
        self._waiting.appendleft(victim)

    def _admit_next(self) -> Sequence | None:
        """Start the oldest waiting sequence; None when there is none or it does not fit now."""
        if not self._waiting or len(self._running) >= self._config.max_sequences:
            return None
        sequence = self._waiting[0]
        num_cached_tokens = self.kv.admit(sequence)
        if num_cached_tokens is None:
            return None
        self._waiting.popleft()
        sequence.start(num_cached_tokens=num_cached_tokens)
        self._running.append(sequence)
        return sequence


def _chunk(sequence: Sequence, budget: int) -> ScheduledRow:
    return ScheduledRow(sequence=sequence, num_tokens=min(sequence.num_uncomputed_tokens, budget))
