"""What is a chat completion to the relay?  https://platform.openai.com/docs/api-reference/chat"""

import json
from dataclasses import dataclass
from typing import Any

from gateway import sse
from gateway.calls import Call, EventUse, public_code, take_usage
from gateway.observe import ChatFacts
from gateway.problems import GatewayError, openai_body
from gateway.schemas import inner_body, parse_chat_request
from telemetry import semconv

CHAT_PATH = "/v1/chat/completions"


def chat_call(body: bytes) -> Call:
    """Raises: GatewayError as `parse_chat_request`."""
    chat = parse_chat_request(body)
    return Call(
        path=CHAT_PATH,
        operation=semconv.OPERATION_CHAT,
        model=chat.model,
        body=inner_body(chat),
        is_streamed=chat.is_streamed,
        reader=ChatReader(wants_usage=chat.wants_usage_chunk),
        max_tokens=chat.output_token_limit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReader:
    """`gateway.calls.AnswerReader`; usage is in each stream, but only told to whom it is asked."""

    wants_usage: bool

    def read_whole(self, body: bytes, facts: ChatFacts) -> None:
        answer = json.loads(body)
        facts.finish_reason = str(answer["choices"][0]["finish_reason"])
        _take_usage(facts, answer["usage"])

    def read_event(self, data: bytes, facts: ChatFacts, *, now_ns: int) -> EventUse:
        if data == sse.DONE_DATA:
            return EventUse.END
        chunk: dict[str, Any] = json.loads(data)
        if "error" in chunk:
            facts.fail(public_code(chunk["error"].get("code")), status=200)
            return EventUse.PASS
        for choice in chunk["choices"]:
            if choice["delta"].get("content"):
                facts.timeline.mark_chunk(now_ns)
            if choice["finish_reason"] is not None:
                facts.finish_reason = str(choice["finish_reason"])
        if chunk.get("usage") is None:
            return EventUse.PASS
        _take_usage(facts, chunk["usage"])
        return EventUse.PASS if self.wants_usage else EventUse.DROP

    def error_event(self, code: str, message: str, param: str | None) -> bytes:
        return sse.encode_json(openai_body(GatewayError(code, message, param=param)))


def _take_usage(facts: ChatFacts, usage: dict[str, Any]) -> None:
    take_usage(
        facts,
        prompt=usage["prompt_tokens"],
        cached=usage["prompt_tokens_details"]["cached_tokens"],
        output=usage["completion_tokens"],
    )
