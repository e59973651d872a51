"""What do the answers to chats and completions say on the way past?  Their objects are alike."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway import sse
from gateway.calls import EventUse, public_code, take_usage
from gateway.facts import RequestFacts
from gateway.problems import GatewayError, openai_body


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkReader:
    """`gateway.calls.AnswerReader`; usage is in each stream, but only told to whom it is asked.

    `has_text`: whether a choice of a chunk has something that was generated. `plain_text` matches
    chunks with text and nothing else to read, as most of our own workers are: they are not parsed.
    """

    wants_usage: bool
    has_text: Callable[[dict[str, Any]], bool]
    plain_text: re.Pattern[bytes] | None = None

    def read_whole(self, body: bytes, facts: RequestFacts) -> None:
        answer = json.loads(body)
        facts.finish_reason = str(answer["choices"][0]["finish_reason"])
        _take_usage(facts, answer["usage"])

    def read_event(self, data: bytes, facts: RequestFacts, *, now_ns: int) -> EventUse:
        if self.plain_text is not None and self.plain_text.fullmatch(data):
            facts.timeline.mark_chunk(now_ns)
            return EventUse.PASS
        if data == sse.DONE_DATA:
            return EventUse.END
        chunk: dict[str, Any] = json.loads(data)
        if "error" in chunk:
            facts.fail(public_code(chunk["error"].get("code")), status=200)
            return EventUse.PASS
        for choice in chunk["choices"]:
            if self.has_text(choice):
                facts.timeline.mark_chunk(now_ns)
            if choice["finish_reason"] is not None:
                facts.finish_reason = str(choice["finish_reason"])
        if chunk.get("usage") is None:
            return EventUse.PASS
        _take_usage(facts, chunk["usage"])
        return EventUse.PASS if self.wants_usage else EventUse.DROP

    def error_event(self, code: str, message: str, param: str | None) -> bytes:
        return sse.encode_json(openai_body(GatewayError(code, message, param=param)))


def _take_usage(facts: RequestFacts, usage: dict[str, Any]) -> None:
    details = usage.get("prompt_tokens_details") or {}  # servers behind an adapter may not tell
    take_usage(
        facts,
        prompt=usage["prompt_tokens"],
        cached=details.get("cached_tokens") or 0,
        output=usage["completion_tokens"],
    )
