"""What must the relay know of a request, whichever endpoint it came to?

A `Call` is a validated request in the worker's words. Its reader takes facts from the answer on the
way past: an endpoint differs from another by these two, and the relay knows neither.
"""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from gateway import sse
from gateway.facts import RequestFacts
from gateway.problems import GatewayError, is_known_code

MAX_ANSWER_BYTES: Final = sse.MAX_EVENT_BYTES  # of one that is whole, or the event that ends it
MAX_TOKENS: Final = 1 << 31  # of one prompt or answer; far beyond any context
BYTES_PER_TOKEN: Final = 4  # of English in the usual vocabularies; only until usage is known


class EventUse(Enum):
    """What becomes of one event of a stream."""

    PASS = "pass"  # noqa: S105 - no password
    DROP = "drop"  # the client did not ask for it
    END = "end"  # the last one: it is told when the worker's final chunk has verified


class AnswerReader(Protocol):
    """Reads the facts of one answer; one value for each request.

    Its methods raise one of MALFORMED for an answer that is.
    """

    def read_whole(self, body: bytes, facts: RequestFacts) -> None: ...

    def read_event(self, data: bytes, facts: RequestFacts, *, now_ns: int) -> EventUse:
        """`data` is that of one event, never empty."""
        ...

    def error_event(self, code: str, message: str, param: str | None) -> bytes:
        """How a stream that has begun tells that it failed."""
        ...


MALFORMED: Final = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    *(RecursionError, OverflowError),  # of JSON: [[[[ and 1e999
)
"""What reading raises for JSON that is malformed, or is not what it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, ready to be sealed. `max_tokens` is the client's bound on each answer."""

    path: str
    operation: str  # `gen_ai.operation.name`
    model: str
    body: bytes = field(repr=False)
    is_streamed: bool
    reader: AnswerReader = field(repr=False)
    max_tokens: int | None = None
    num_choices: int = 1
    wants_usage: bool = True  # both are asked of streams
    wants_obfuscation: bool = True

    @property
    def estimated_prompt_tokens(self) -> int:
        """Before anything is tokenized."""
        return math.ceil(len(self.body) / BYTES_PER_TOKEN)


def take_usage(facts: RequestFacts, *, prompt: Any, cached: Any, output: Any) -> None:
    facts.timeline.mark_usage(
        prompt_tokens=_count(prompt), cached_tokens=_count(cached), output_tokens=_count(output)
    )
    facts.has_usage = True


def _count(tokens: Any) -> int:
    """Quotas are charged with it. Raises: ValueError."""
    if type(tokens) is not int or not 0 <= tokens <= MAX_TOKENS:
        raise ValueError("no number of tokens")
    return tokens


def too_large_an_answer() -> GatewayError:
    """What was asked for has more than MAX_ANSWER_BYTES: nothing is wrong with who answers."""
    return GatewayError(
        "invalid_value",
        f"The answer has more than {MAX_ANSWER_BYTES} bytes: ask for fewer tokens, answers, log "
        "probabilities or texts.",
    )


def public_text(said: object) -> str:
    """A worker's text as ours. Raises: ValueError: no encoding has bytes for it."""
    return str(said).encode().decode()


def public_code(code: object) -> str:
    """A worker's code as ours: only those of our own table are passed on."""
    return code if isinstance(code, str) and is_known_code(code) else "upstream_error"
