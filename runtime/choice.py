"""How does a scheduled step become chosen tokens?  Logits, masks, one choice a row, drafts checked.

Masks are computed in a thread while the runner computes logits, which a native runner does without
the GIL. A row of logits after a draft is only looked at as long as every draft before it is right.
A step has so much time for masks, cheap ones first in most; a row whose mask is not made then sits
the step out. Only the mask that is first in turn is waited for however long it takes, which
``runtime.grammar_bounds`` bounds: the grammars of some hold up the answers of others by little.
"""

from collections.abc import Callable
from collections.abc import Sequence as Rows
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Generic

import numpy as np

from runtime.errors import GrammarFailed, InvariantBroken
from runtime.grammar import TokenMasks
from runtime.interfaces import LogitsT, Runner, TokenSampler
from runtime.live import Live
from runtime.plan_builder import ScheduledRow
from runtime.sampler import BROKEN_ROW, LogprobsWanted, SampleRow, TokenLogprobs
from runtime.scheduler import ScheduledStep
from runtime.sequence import FinishReason
from runtime.speculation import num_right

_MASK_SHARE: Final = 0.25  # of the target between two tokens
_FAIR_EVERY: Final = 5  # in one of so many steps dear masks do not come after cheap ones
_ALL_ALLOWED = np.uint32(0xFFFFFFFF)


@dataclass(slots=True, kw_only=True)
class Chosen:
    """What one sampled row goes on with: its right drafts, then one token more."""

    token_ids: list[int] = field(repr=False)
    logprobs: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    failure: FinishReason | None = None  # no token, or no mask: then nothing of this counts
    is_late: bool = False  # its mask was not made in time: nothing of this counts either

    @property
    def num_accepted(self) -> int:
        return len(self.token_ids) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChoice:
    """For each sampled row in order; ``grammar_ns`` is what their masks took, beside the run."""

    chosen: list[Chosen]
    grammar_ns: int


@dataclass(slots=True, kw_only=True)
class _Masks:
    """Row ``starts[i] + n`` is the mask after ``n`` drafts of sampled row ``i``, with a grammar."""

    rows: TokenMasks
    starts: dict[int, int]
    failed: set[int] = field(default_factory=set)
    late: Rows[int] = ()
    spent_ns: int = 0


class Chooser(Generic[LogitsT]):
    """Drives a runner and its sampler."""

    def __init__(
        self,
        runner: Runner[LogitsT],
        sampler: TokenSampler[LogitsT],
        *,
        clock_ns: Callable[[], int],
        itl_target_s: float,
    ) -> None:
        self._mask_budget_ns = int(itl_target_s * _MASK_SHARE * 1e9)
        self._num_mask_steps = 0
        self._runner = runner
        self._sampler = sampler
        self._clock_ns = clock_ns
        self._num_mask_words = -(-runner.vocab_size // 32)
        self._thread: ThreadPoolExecutor | None = None  # made for the first grammar

    def choose(self, step: ScheduledStep, lives: Rows[Live]) -> StepChoice:
        """Run the step and choose for its sampled rows, whose requests ``lives`` are.

        Raises: whatever the runner and the sampler do; InvariantBroken when they break a promise.
        """
        masking = self._start_masks(step.sampled, lives)
        try:
            logits = self._runner.run(step.plan)
        finally:
            masks = masking.result() if masking is not None else None
        if not step.sampled:
            return StepChoice(chosen=[], grammar_ns=0)
        rows = _sample_rows(step.sampled, lives, masks)
        token_ids = self._sampler.sample(logits, rows)
        self._require_promised(token_ids, len(rows))
        chosen, starts, start = [], [], 0
        for row in step.sampled:
            stop = start + 1 + len(row.draft_token_ids)
            num_accepted = num_right(row.draft_token_ids, token_ids[start:stop])
            kept = token_ids[start : start + num_accepted + 1]
            failure: FinishReason | None = "error" if BROKEN_ROW in kept else None
            chosen.append(Chosen(token_ids=kept, failure=failure))
            starts.append(start)
            start = stop
        self._add_logprobs(logits, lives, chosen, starts)
        if masks is None:
            return StepChoice(chosen=chosen, grammar_ns=0)
        for idx in masks.failed:
            chosen[idx].failure = "grammar_failed"
        for idx in masks.late:
            chosen[idx].is_late = True
        return StepChoice(chosen=chosen, grammar_ns=masks.spent_ns)

    def _start_masks(
        self, sampled: Rows[ScheduledRow], lives: Rows[Live]
    ) -> "Future[_Masks] | None":
        starts: dict[int, int] = {}
        num_rows = 0
        for idx, (row, live) in enumerate(zip(sampled, lives, strict=True)):
            if live.grammar is not None:
                starts[idx] = num_rows
                num_rows += 1 + len(row.draft_token_ids)
        if not starts:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        rows = np.full((num_rows, self._num_mask_words), _ALL_ALLOWED, np.uint32)
        masks = _Masks(rows=rows, starts=starts)
        return self._thread.submit(self._fill_masks, masks, sampled, lives)

    def _fill_masks(self, masks: _Masks, sampled: Rows[ScheduledRow], lives: Rows[Live]) -> _Masks:
        """The first in turn at least, the rest while there is time."""
        started_ns = now_ns = self._clock_ns()
        turns = self._in_turn([*masks.starts], lives)
        for num_made, idx in enumerate(turns):
            if num_made and now_ns - started_ns > self._mask_budget_ns:
                masks.late = turns[num_made:]
                break
            live, drafts, start = lives[idx], sampled[idx].draft_token_ids, masks.starts[idx]
            if live.grammar is None:
                continue
            try:
                live.grammar.fill_masks(masks.rows[start : start + 1 + len(drafts)], drafts)
            except GrammarFailed:
                masks.failed.add(idx)
            before_ns, now_ns = now_ns, self._clock_ns()
            live.mask_ns = (now_ns - before_ns) // (1 + len(drafts))
            live.masked_at = self._num_mask_steps
        masks.spent_ns = now_ns - started_ns
        return masks

    def _in_turn(self, idxs: Rows[int], lives: Rows[Live]) -> Rows[int]:
        """Those with cheap masks first; among equals, those whose last mask is longest ago. The
        latter alone now and then: cheap ones may fill every step.
        """
        self._num_mask_steps += 1
        for idx in idxs:
            if lives[idx].masked_at is None:
                lives[idx].masked_at = self._num_mask_steps
        is_fair = self._num_mask_steps % _FAIR_EVERY == 0

        def turn(idx: int) -> tuple[bool, int, bool]:
            live = lives[idx]
            return live.is_dear and not is_fair, live.masked_at or 0, live.is_dear

        return sorted(idxs, key=turn)

    def _add_logprobs(
        self, logits: LogitsT, lives: Rows[Live], chosen: Rows[Chosen], starts: Rows[int]
    ) -> None:
        wanted: list[LogprobsWanted] = []
        owners: list[Chosen] = []
        for live, one, start in zip(lives, chosen, starts, strict=True):
            num_top = live.sequence.request.sampling.logprobs
            if num_top is not None and one.failure is None:
                owners.append(one)
                wanted += [
                    LogprobsWanted(row_idx=start + offset, token_id=token_id, num_top=num_top)
                    for offset, token_id in enumerate(one.token_ids)
                ]
        if wanted:
            logprobs = iter(self._sampler.logprobs(logits, wanted))
            for one in owners:
                one.logprobs = tuple(next(logprobs) for _ in one.token_ids)

    def _require_promised(self, token_ids: Rows[int], num_rows: int) -> None:
        if len(token_ids) != num_rows:
            raise InvariantBroken(f"sampled {len(token_ids)} tokens for {num_rows} rows")
        vocab_size = self._runner.vocab_size
        if not all(0 <= token_id < vocab_size or token_id == BROKEN_ROW for token_id in token_ids):
            raise InvariantBroken("sampled a token outside the vocabulary")


def _sample_rows(
    sampled: Rows[ScheduledRow], lives: Rows[Live], masks: _Masks | None
) -> list[SampleRow]:
    rows: list[SampleRow] = []
    for idx, (row, live) in enumerate(zip(sampled, lives, strict=True)):
        sequence, drafts = row.sequence, row.draft_token_ids
        first_step = sequence.num_output_tokens
        mask_start = None if masks is None else masks.starts.get(idx)
        for offset in range(1 + len(drafts)):
            allowed = None
            if masks is not None and mask_start is not None:
                allowed = masks.rows[mask_start + offset]
            rows.append(
                SampleRow(
                    params=sequence.request.sampling,
                    rng_seed=sequence.rng_seed,
                    step=first_step + offset,
                    history=live.history,
                    drafts=drafts[:offset] if live.history is not None else (),
                    allowed=allowed,
                )
            )
    return rows
