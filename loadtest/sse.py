"""What did a server-sent event stream say, and when?  Parsed after the stream has ended.

Lines are time-stamped as they arrive and decoded later, so that decoding never delays the clock.
Comments, role-only deltas, empty deltas and the usage chunk are not tokens.  [WHATWG HTML 9.2]
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TimedLine:
    """One line as it was read, without its line end."""

    at_ns: int
    data: bytes


@dataclass(slots=True)
class StreamFacts:
    """What one stream amounted to; ``text_chunks_ns`` holds chunks that carried text."""

    text_chunks_ns: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    is_done: bool = False


def parse_stream(lines: Sequence[TimedLine]) -> StreamFacts:
    """Facts of a chat completion stream. Never raises: a broken stream has an ``error_code``."""
    facts = StreamFacts()
    for line in lines:
        if not line.data.startswith(b"data:"):
            continue
        payload = line.data[5:].strip()
        if payload == b"[DONE]":
            facts.is_done = True
            continue
        try:
            event = json.loads(payload)
        except ValueError:
            facts.error_code = facts.error_code or "malformed_event"
            continue
        if isinstance(event, dict):
            _take_event(facts, event, line.at_ns)
    if not facts.is_done and facts.error_code is None:
        facts.error_code = "stream_truncated"
    return facts


def _take_event(facts: StreamFacts, event: dict[str, object], at_ns: int) -> None:
    error = event.get("error")
    if isinstance(error, dict):
        facts.error_code = str(error.get("code") or "server_error")
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        _take_choice(facts, choices[0], at_ns)
    usage = event.get("usage")
    if isinstance(usage, dict):
        facts.prompt_tokens = _count(usage.get("prompt_tokens"))
        facts.output_tokens = _count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            facts.cached_tokens = _count(details.get("cached_tokens"))


def _take_choice(facts: StreamFacts, choice: dict[str, object], at_ns: int) -> None:
    delta = choice.get("delta")
    if isinstance(delta, dict) and (delta.get("content") or delta.get("reasoning_content")):
        facts.text_chunks_ns.append(at_ns)
    if isinstance(reason := choice.get("finish_reason"), str):
        facts.finish_reason = reason


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
