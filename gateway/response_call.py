"""What is a response to the relay?  No `[DONE]`: the last event of its stream is all of it."""

import json
from collections.abc import Mapping
from typing import Any, Final

from gateway.calls import Call, EventUse, public_code, take_usage
from gateway.facts import RequestFacts
from gateway.problems import GatewayError
from gateway.response_errors import error_event
from gateway.schemas.responses import response_inner_body, validate_response_request
from telemetry import semconv

RESPONSES_PATH: Final = "/v1/responses"
_DELTAS: Final = frozenset({"response.output_text.delta", "response.function_call_arguments.delta"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})


def response_call(asked: Mapping[str, Any]) -> Call:
    """Of a parsed body. Raises: GatewayError as `parse_response_request`."""
    request, chat = validate_response_request(asked)
    return Call(
        path=RESPONSES_PATH,
        operation=semconv.OPERATION_CHAT,
        model=request.model,
        body=response_inner_body(request),
        is_streamed=request.is_streamed,
        reader=ResponseReader(),
        max_tokens=chat.output_token_limit,
    )


class ResponseReader:
    """`gateway.calls.AnswerReader`; counts the events, since an error of ours is one of them."""

    def __init__(self) -> None:
        self._num_events = 0

    def read_whole(self, body: bytes, facts: RequestFacts) -> None:
        _take_response(json.loads(body), facts)

    def read_event(self, data: bytes, facts: RequestFacts, *, now_ns: int) -> EventUse:
        event: dict[str, Any] = json.loads(data)
        kind = event["type"]
        self._num_events = int(event["sequence_number"]) + 1
        if kind in _DELTAS:
            facts.timeline.mark_chunk(now_ns)
        elif kind == "error":
            facts.fail(public_code(event["code"]), status=200)
        elif kind == "response.failed":
            facts.fail(public_code((event["response"]["error"] or {}).get("code")), status=200)
            return EventUse.END
        elif kind in _ENDS:
            _take_response(event["response"], facts)
            return EventUse.END
        return EventUse.PASS

    def error_event(self, code: str, message: str, param: str | None) -> bytes:
        error = GatewayError(code, message, param=param)
        return error_event(error, sequence_number=self._num_events)


def _take_response(response: dict[str, Any], facts: RequestFacts) -> None:
    usage = response["usage"]
    has_calls = any(item["type"] == "function_call" for item in response["output"])
    is_cut_short = response["status"] == "incomplete"
    facts.finish_reason = "length" if is_cut_short else "tool_calls" if has_calls else "stop"
    take_usage(
        facts,
        prompt=usage["input_tokens"],
        cached=usage["input_tokens_details"]["cached_tokens"],
        output=usage["output_tokens"],
    )
