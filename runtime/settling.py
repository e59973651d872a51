"""What becomes of a step that has run?  Output, computed tokens, and who goes on or ends."""

import logging
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from traceback import extract_tb
from typing import Final

from runtime.choice import Chosen
from runtime.errors import GrammarFailed
from runtime.live import Advance, Kept, Live
from runtime.sampler import NonFiniteLogitsError
from runtime.scheduler import ScheduledStep, Scheduler
from runtime.sequence import FinishReason
from runtime.speculation import Drafted, Speculator

_FAILURES: Final = frozenset[FinishReason]({"error", "grammar_failed"})
logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class StepResult:
    """What a step came to, as far as its stats want to know."""

    advances: list[Advance]
    num_sampled: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    error_type: str | None = None


class Settler:
    """Part of one engine, whose live requests it ends."""

    def __init__(self, scheduler: Scheduler, speculator: Speculator, live: dict[str, Live]) -> None:
        self._scheduler = scheduler
        self._speculator = speculator
        self._live = live

    def fail(self, step: ScheduledStep, err: Exception, *, now_ns: int) -> StepResult:
        log_failure("batch failed", err)
        advances = [
            self.finish(row.sequence.request.request_id, "error", now_ns=now_ns)
            for row in step.rows
        ]
        return StepResult(advances=advances, error_type=type(err).__name__)

    def commit(
        self,
        step: ScheduledStep,
        lives: Rows[Live],
        chosen: Rows[Chosen],
        *,
        step_s: float,
        now_ns: int,
    ) -> StepResult:
        """1. Rows without a token end, so that no key ever leads to what they computed. 2. What of
        the chosen tokens is output. 3. It is computed. 4. Who goes on, who ends.
        """
        result = self._end_broken(lives, chosen, now_ns=now_ns)  # 1
        kept: list[Kept] = []
        drafted: list[Drafted] = []
        for row, live, one in zip(step.sampled, lives, chosen, strict=True):  # 2
            keeps = _keep(live, one)
            kept.append(keeps)
            if one.is_late or keeps.reason in _FAILURES:
                continue
            result.num_sampled += len(keeps.token_ids)
            if row.draft_token_ids:
                num_drafts, num_accepted = len(row.draft_token_ids), one.num_accepted
                result.num_drafted += num_drafts
                result.num_accepted += num_accepted
                drafted.append(
                    Drafted(sequence=row.sequence, num_drafts=num_drafts, num_accepted=num_accepted)
                )
        self._scheduler.commit(step, [one.token_ids for one in kept], step_s=step_s)  # 3
        self._speculator.observe(
            drafted,
            num_sequences=len(step.rows),
            step_s=step_s,
            has_prompts=step.stats.num_prefill_tokens > 0,
        )
        for live, one, keeps in zip(lives, chosen, kept, strict=True):  # 4
            if one.is_late or keeps.reason == "error":
                continue
            result.advances.append(self._advance(live, one, keeps, now_ns=now_ns))
        return result

    def _end_broken(self, lives: Rows[Live], chosen: Rows[Chosen], *, now_ns: int) -> StepResult:
        broken = [
            live.sequence.request.request_id
            for live, one in zip(lives, chosen, strict=True)
            if one.failure == "error"
        ]
        if not broken:
            return StepResult(advances=[])
        error_type = NonFiniteLogitsError.code
        logger.error(
            "logits are not finite", extra={"error_type": error_type, "num_rows": len(broken)}
        )
        advances = [self.finish(request_id, "error", now_ns=now_ns) for request_id in broken]
        return StepResult(advances=advances, error_type=error_type)

    def _advance(self, live: Live, chosen: Chosen, kept: Kept, *, now_ns: int) -> Advance:
        sequence = live.sequence
        request_id = sequence.request.request_id
        if kept.reason in _FAILURES:
            return self.finish(request_id, kept.reason, now_ns=now_ns)
        if sequence.first_token_ns is None:
            sequence.first_token_ns = now_ns
        if kept.reason is None:
            advance = Advance(request_id=request_id, token_ids=kept.token_ids)
        else:
            advance = self.finish(request_id, kept.reason, now_ns=now_ns)
            advance.token_ids = kept.token_ids
        advance.text, advance.output = kept.text, kept.output
        if chosen.logprobs:
            advance.logprobs = chosen.logprobs[: len(kept.token_ids)]
        return advance

    def finish(self, request_id: str, reason: FinishReason, *, now_ns: int) -> Advance:
        sequence = self._live.pop(request_id).sequence
        self._scheduler.finish(sequence)
        self._speculator.forget(request_id)
        return Advance(
            request_id=request_id,
            token_ids=(),
            finish_reason=reason,
            timing=sequence.timing(finished_ns=now_ns),
        )


def _keep(live: Live, chosen: Chosen) -> Kept:
    """What a failed grammar leaves is never output, but its row must go on with something."""
    if chosen.failure is not None:
        return Kept(token_ids=tuple(chosen.token_ids), reason=chosen.failure)
    if chosen.is_late:
        return Kept(token_ids=(), reason=None)
    try:
        return live.keep(chosen.token_ids)
    except GrammarFailed:
        return Kept(token_ids=tuple(chosen.token_ids), reason="grammar_failed")


def log_failure(message: str, err: Exception) -> None:
    # The error's own message may quote a prompt, the place cannot.
    frame = extract_tb(err.__traceback__)[-1]
    where = f"{frame.filename}:{frame.lineno}"
    logger.error(message, extra={"error_type": type(err).__name__, "where": where})
