"""How did a generation end, and what did all of a request's come to?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.facts import EngineFacts
from gateway.problems import GatewayError
from gateway.worker.inner import InnerRequest
from runtime import Delta, SequenceTiming

_PUBLIC_REASONS: Final = frozenset({"stop", "length"})


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One generation, as far as it got."""

    arrived_ns: int
    reason: str | None = None
    timing: SequenceTiming | None = None
    error_code: str | None = None

    def take(self, delta: Delta) -> None:
        if delta.finish_reason is not None:
            self.reason, self.timing = delta.finish_reason, delta.timing

    def public_reason(self) -> str:
        """Raises: GatewayError when the engine gave the generation up."""
        if self.reason == "grammar_failed":
            raise GatewayError(
                "grammar_failed", "The grammar became too complex for this answer to go on."
            )
        if self.reason not in _PUBLIC_REASONS or self.reason is None:
            raise GatewayError("generation_failed", "The engine gave this request up.")
        return self.reason

    def facts(self, request: InnerRequest, *, ended_ns: int) -> EngineFacts:
        is_unfinished = self.reason is None and self.error_code is None
        return EngineFacts(
            request_id=request.request_id,
            traceparent=request.traceparent,
            arrived_ns=self.arrived_ns,
            ended_ns=ended_ns,
            finish_reason=self.reason,
            error_code="client_disconnected" if is_unfinished else self.error_code,
            timing=self.timing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request: its prompts once each, all of its answers."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    def chat_object(self) -> Mapping[str, Any]:
        """As chat completions and completions tell it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def usage_of(outcomes: Sequence[Outcome], *, num_answers: int) -> Usage:
    """`outcomes` are `num_answers` for each prompt, in order. Raises: GatewayError."""
    timings = [outcome.timing for outcome in outcomes if outcome.timing is not None]
    if len(timings) < len(outcomes):
        raise GatewayError("generation_failed", "The engine reported no usage.")
    firsts = timings[::num_answers]
    return Usage(
        prompt_tokens=sum(timing.prompt_tokens for timing in firsts),
        cached_tokens=sum(timing.cached_tokens for timing in firsts),
        output_tokens=sum(timing.output_tokens for timing in timings),
    )
