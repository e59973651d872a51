"""Which tokens of which sequences does the next step compute?

Every sequence wants the same thing, its uncomputed tokens computed, and every step has one budget
of tokens and time:

1. Sequences with one uncomputed token come first, since somebody reads their output as it comes;
   guesses at what follows (drafts) ride along where there is room.
2. Prompts get what is left of a step as long as those readers can bear (``runtime.step_cost``), or
   all of it when nobody reads. A quarter goes to the oldest prompt, the rest to the shortest
   first: a short prompt is not stuck behind a long one, and a long one always advances. Once enough
   of them end in the step, others wait for the next one.
3. Waiting sequences start in between, when ``runtime.entrance`` lets them in.

When blocks run out all the same the running sequence of lowest rank is preempted: it gives back
its blocks, keeps its tokens and waits to be computed again. In such a step nobody is admitted. The
sequence of highest rank always runs, and as each fits the cache alone there is always one that
advances.
"""

from bisect import insort
from collections.abc import Mapping
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from math import inf
from typing import Final

from runtime.config import EngineConfig
from runtime.entrance import Entrance, urgency
from runtime.errors import InvariantBroken
from runtime.kvcache.manager import KVCacheManager
from runtime.observer import ScheduleStats
from runtime.plan import StepPlan
from runtime.plan_builder import ScheduledRow, build_plan
from runtime.sequence import Sequence, SequenceStatus
from runtime.step_cost import PrefillBudget, StepCostModel, count_pairs

_OLDEST_SHARE: Final = 4  # the oldest prompt gets one in so many of the tokens for prompts
_PACE_WEIGHT: Final = 0.2  # of the last step, in the smoothed number of prompt tokens a step


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStep:
    """A plan and the sequences it belongs to; ``rows[b]`` is sequence ``b`` of the plan."""

    plan: StepPlan
    rows: tuple[ScheduledRow, ...]
    sampled: tuple[ScheduledRow, ...]  # in the order of ``plan.logits_rows``, 1 + drafts each
    num_pairs: int  # (query, key) pairs of attention
    stats: ScheduleStats

    @property
    def num_preempted(self) -> int:
        return self.stats.num_preempted


class Scheduler:
    """Queues, budgets and preemption; touches no tensor and reads no clock."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._running: list[Sequence] = []  # highest rank first
        self._pace = float(config.max_batch_tokens)  # prompt tokens a step
        self._num_merged_before = 0
        self.cost = StepCostModel()
        self.kv = KVCacheManager(config)
        self._entrance = Entrance(config, self.kv)

    @property
    def num_waiting(self) -> int:
        return len(self._entrance)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def has_room(self, tenant: str) -> bool:
        """Whether one more sequence of the tenant may be added now."""
        return self._entrance.has_room(tenant)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence younger than all others, that fits the cache when it runs alone."""
        self._entrance.add(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Take a waiting or running sequence out and its blocks back, for whatever reason."""
        if sequence.status is SequenceStatus.RUNNING:
            self._running.remove(sequence)
            self._entrance.forget(sequence)
        else:
            self._entrance.remove(sequence)
        self.kv.release(sequence)
        sequence.finish()

    def schedule(self) -> ScheduledStep | None:
        """The next step, or None when there is nothing to do; ``commit`` it once it has run.

        Raises: InvariantBroken when there is work and none of it can advance.
        """
        config = self._config
        num_soon = len(self._running) + config.max_batch_tokens // config.block_size
        self._entrance.start_step(num_soon=num_soon)
        decoding, prefilling, num_preempted = self._make_room()
        rows, num_decode_tokens, num_pairs = self._decode_rows(decoding)
        budget = self._prefill_budget(decoding, len(prefilling), num_decode_tokens, num_pairs)
        max_prefill_tokens = budget.room(start=0)
        granted = self._share_out(prefilling, budget, may_admit=not num_preempted)
        for sequence, num_tokens in granted.items():
            num_pairs += count_pairs(sequence.num_computed_tokens, num_tokens)
            is_whole = num_tokens == sequence.num_uncomputed_tokens
            rows.append(ScheduledRow(sequence=sequence, num_tokens=num_tokens, is_sampled=is_whole))
        if not rows:
            if self.num_waiting or self._running:
                raise InvariantBroken("schedule: no sequence can advance")
            return None
        if budget.num_granted:
            self._pace += _PACE_WEIGHT * (budget.num_granted - self._pace)
        num_tokens = num_decode_tokens + budget.num_granted
        return ScheduledStep(
            plan=build_plan(rows, block_size=config.block_size),
            rows=tuple(rows),
            sampled=tuple(row for row in rows if row.is_sampled),
            num_pairs=num_pairs,
            stats=self._stats(
                num_decode_tokens=num_decode_tokens,
                num_draft_tokens=num_decode_tokens - len(decoding),
                num_prefill_tokens=budget.num_granted,
                max_prefill_tokens=max_prefill_tokens,
                predicted_s=self.cost.predict(num_tokens, num_pairs),
                num_preempted=num_preempted,
            ),
        )

    def commit(
        self,
        step: ScheduledStep,
        new_token_ids: Rows[Rows[int]],
        *,
        step_s: float | None = None,
    ) -> None:
        """The step has run: its tokens are computed, and each sampled row goes on with new ones.

        ``new_token_ids[i]`` of ``step.sampled[i]``: the accepted prefix of its drafts, then the
        one token that no draft stood for; appended here. None at all when it sat the step out: its
        last token is computed again. What was computed of rejected drafts is
        never counted, so the next step overwrites it and no key ever leads to it. A sequence that
        finished while the step ran is passed over. ``step_s`` is how long the step took.

        Raises: InvariantBroken when new tokens contradict the drafts they were computed with.
        """
        if len(new_token_ids) != len(step.sampled):
            raise InvariantBroken("commit: one list of new tokens is due for each sampled row")
        for row, token_ids in zip(step.sampled, new_token_ids, strict=True):
            drafts = row.draft_token_ids[: max(0, len(token_ids) - 1)]
            if tuple(token_ids[:-1]) != drafts:
                raise InvariantBroken("commit: the new tokens do not continue the drafts")
        new = iter(new_token_ids)
        for row in step.rows:
            sequence = row.sequence
            token_ids = next(new) if row.is_sampled else ()
            if sequence.status is not SequenceStatus.RUNNING:
                continue
            num_tokens = row.num_tokens
            if row.is_sampled:
                num_tokens += len(token_ids) - 1
            if token_ids:
                sequence.token_ids.extend(token_ids)
                self._entrance.charge(sequence, len(token_ids))
            self.kv.commit(sequence, num_tokens=num_tokens)
        if step_s is not None:
            self.cost.observe(step.plan.num_tokens, step.num_pairs, step_s)

    # -- 1. those who decode ---------------------------------------------------------------

    def _make_room(self) -> tuple[list[Sequence], list[Sequence], int]:
        """Who has one uncomputed token and a slot for it, who has more, how many were preempted.

        A victim ranks lower than the sequence it makes room for, so it is in neither list.
        """
        decoding: list[Sequence] = []
        prefilling: list[Sequence] = []
        num_preempted = 0
        size = self._config.block_size
        for sequence in tuple(self._running):
            num_tokens = len(sequence.token_ids)
            is_decoding = num_tokens - sequence.num_computed_tokens <= 1
            if is_decoding and num_tokens > len(sequence.block_table) * size:
                num_preempted += self._preempt_for(sequence)
            if sequence.status is SequenceStatus.RUNNING:
                (decoding if is_decoding else prefilling).append(sequence)
        return decoding, prefilling, num_preempted

    def _preempt_for(self, sequence: Sequence) -> int:
        """Give it a block, or preempt it; how many were preempted."""
        num_preempted = 0
        while sequence.status is SequenceStatus.RUNNING and not self.kv.grow(sequence):
            self._preempt_below(sequence)
            num_preempted += 1
        return num_preempted

    def _preempt_below(self, sequence: Sequence) -> None:
        """Of those that rank no higher, the lowest that frees a block now, or else the lowest."""
        lower = self._running[self._running.index(sequence) :]
        victims = (one for one in reversed(lower) if self.kv.frees_blocks(one))
        victim = next(victims, lower[-1])
        self._running.remove(victim)
        self.kv.release(victim)
        victim.preempt()
        self._entrance.put_back(victim)

    def _decode_rows(self, decoding: Rows[Sequence]) -> tuple[list[ScheduledRow], int, int]:
        """Their rows, tokens and (query, key) pairs."""
        config = self._config
        spare_tokens = config.max_batch_tokens - len(decoding) - config.min_prefill_tokens
        num_drafts = num_pairs = 0
        rows: list[ScheduledRow] = []
        for sequence in decoding:
            drafts: tuple[int, ...] = ()
            if sequence.draft_token_ids:
                drafts = self._take_drafts(sequence, spare_tokens - num_drafts)
                num_drafts += len(drafts)
            num_pairs += count_pairs(sequence.num_computed_tokens, 1 + len(drafts))
            rows.append(
                ScheduledRow(
                    sequence=sequence, num_tokens=1, is_sampled=True, draft_token_ids=drafts
                )
            )
        rows.sort(key=lambda row: not row.sequence.is_batch_invariant)  # neighbours go together
        return rows, len(rows) + num_drafts, num_pairs

    def _take_drafts(self, sequence: Sequence, spare_tokens: int) -> tuple[int, ...]:
        """As many drafts as the budget, the output's bound and the blocks at hand allow."""
        proposed, sequence.draft_token_ids = sequence.draft_token_ids, ()
        num_due = sequence.max_output_tokens - sequence.num_output_tokens
        drafts = proposed[: max(0, min(spare_tokens, num_due - 1))]
        if not self.kv.grow(sequence, num_drafts=len(drafts)):
            drafts = drafts[: self.kv.num_spare_slots(sequence)]
        return drafts

    # -- 2. prompts ------------------------------------------------------------------------

    def _prefill_budget(
        self, decoding: Rows[Sequence], num_prefilling: int, num_decode_tokens: int, num_pairs: int
    ) -> PrefillBudget:
        """What a step may spend on prompts beside those who decode.

        A step takes at most the target, and for each prompt there is ``itl_stretch`` times what it
        would take without: one prompt that comes along is spread thin, many are not kept waiting.
        """
        config = self._config
        time_s = inf
        if any(sequence.num_output_tokens for sequence in decoding):
            decode_s = self.cost.predict(num_decode_tokens, num_pairs)
            num_prompts = max(1, num_prefilling + self.num_waiting)
            stretched_s = decode_s * config.itl_stretch * num_prompts
            time_s = min(config.itl_target_s, stretched_s) - decode_s
        return PrefillBudget(
            self.cost,
            max_tokens=config.max_batch_tokens - num_decode_tokens,
            time_s=time_s,
            floor_tokens=config.min_prefill_tokens,
        )

    def _share_out(
        self, prefilling: Rows[Sequence], budget: PrefillBudget, *, may_admit: bool
    ) -> dict[Sequence, int]:
        """Tokens of each prompt in this step: a share for the oldest, the rest by urgency."""
        granted: dict[Sequence, int] = {}

        def grant(sequence: Sequence, num_wanted: int) -> None:
            before = granted.get(sequence, 0)
            start = sequence.num_computed_tokens + before
            left = sequence.num_uncomputed_tokens - before
            if num_tokens := budget.take(min(num_wanted, left), start=start):
                granted[sequence] = before + num_tokens

        if prefilling:
            oldest = min(prefilling, key=lambda one: one.arrival_idx)
            room = budget.room(start=oldest.num_computed_tokens)
            grant(oldest, -(-room // _OLDEST_SHARE))
        pending = sorted(prefilling, key=_urgency, reverse=True)
        while budget.room(start=0) > 0 and not self._is_enough(granted, len(pending)):
            admitted = self._admit_before(pending) if may_admit else None
            if admitted is None and not pending:
                break
            sequence = admitted or pending.pop()
            grant(sequence, sequence.num_uncomputed_tokens)
        return granted

    def _is_enough(self, granted: Mapping[Sequence, int], num_pending: int) -> bool:
        """Have so many prompts come to their end that others had better wait for the next step?

        A step ends for all its prompts at once, and each step costs ``overhead`` tokens more. With
        n prompts of equal length to come, k to a step, the mean wait for a prompt's end is least at
        k = sqrt(n * overhead / length). With sqrt(2) times as many it is hardly longer, and the
        wait for the last one much shorter.
        """
        num_ended = sum(n == one.num_uncomputed_tokens for one, n in granted.items())
        num_prompts = len(granted) + num_pending + self.num_waiting
        return num_ended * sum(granted.values()) > 2 * num_prompts * self.cost.overhead_tokens

    def _admit_before(self, pending: Rows[Sequence]) -> Sequence | None:
        """Start a waiting sequence that goes before the next prompt in progress."""
        admitted = self._entrance.admit_next(
            self._running,
            before=_urgency(pending[-1]) if pending else None,
            num_partial=len(pending),
            pace=self._pace,
        )
        if admitted is not None:
            insort(self._running, admitted, key=_rank)
        return admitted

    def _stats(
        self,
        *,
        num_decode_tokens: int,
        num_draft_tokens: int,
        num_prefill_tokens: int,
        max_prefill_tokens: int,
        predicted_s: float,
        num_preempted: int,
    ) -> ScheduleStats:
        entrance, counts = self._entrance, self._entrance.counts
        num_merged = self.kv.num_merged_blocks - self._num_merged_before
        self._num_merged_before += num_merged
        num_behind = len(entrance) - entrance.num_awaiting
        return ScheduleStats(
            num_decode_tokens=num_decode_tokens,
            num_draft_tokens=num_draft_tokens,
            num_prefill_tokens=num_prefill_tokens,
            max_prefill_tokens=max_prefill_tokens,
            predicted_s=predicted_s,
            num_preempted=num_preempted,
            num_admitted=counts.num_admitted,
            num_resumed=counts.num_resumed,
            num_prompt_tokens=counts.num_prompt_tokens,
            num_cached_tokens=counts.num_cached_tokens,
            num_deduped_tokens=counts.num_deduped_tokens,
            num_merged_blocks=num_merged,
            num_waiting_for_prefix=entrance.num_awaiting,
            num_waiting_for_tokens=num_behind if counts.blocker == "tokens" else 0,
            num_waiting_for_sequences=num_behind if counts.blocker == "sequences" else 0,
            num_waiting_for_blocks=num_behind if counts.blocker == "blocks" else 0,
            num_aged=entrance.num_aged,
        )


def _rank(sequence: Sequence) -> tuple[bool, int, int]:
    return sequence.rank


def _urgency(sequence: Sequence) -> tuple[int, int, int]:
    return urgency(sequence, sequence.num_uncomputed_tokens)
