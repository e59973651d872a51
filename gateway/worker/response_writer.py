"""How does a response look on the wire?  OpenAI's response object, and the events that build it.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from gateway import sse
from gateway.problems import GatewayError
from gateway.response_errors import error_event
from gateway.worker.job import WrittenAnswer
from gateway.worker.obfuscation import Filler
from gateway.worker.outcome import Usage
from gateway.worker.tool_calls import CallArguments, CallBegun, Piece, Said, ToolCallParser
from runtime import TokenLogprobs

Json = dict[str, Any]


class Speller(Protocol):
    """Shows log probabilities as clients get them."""

    def entries(self, found: Sequence[Any]) -> list[Json]: ...


_INCOMPLETE: Final = {"reason": "max_output_tokens"}


class ResponseWriter:
    """`gateway.worker.job.AnswerWriter` of the one answer that a response is.

    `asked` are the members that repeat the request. An item is open until another begins.
    """

    def __init__(
        self,
        *,
        request_id: str,
        created_s: int,
        asked: Mapping[str, Any],
        spelling: Speller,
        tool_names: Collection[str],
        filler: Filler | None,
    ) -> None:
        self._request_id = request_id
        self._created_s = created_s
        self._asked = asked
        self._spelling = spelling
        self._parser = ToolCallParser(tool_names) if tool_names else None
        self._filler = filler
        self._output: list[Json] = []  # the last one may be open
        self._is_open = False
        self._is_cut_short = False
        self._num_events = 0
        self.last: Json = {}  # the response as its end told it

    # -- events ----------------------------------------------------------------------------

    def start(self) -> bytes:
        begun = self._response("in_progress", None)
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def delta(self, index: int, text: str, logprobs: Sequence[TokenLogprobs]) -> bytes:
        parser = self._parser
        pieces: Sequence[Piece] = parser.feed(text) if parser else [Said(text)] if text else []
        if logprobs and not pieces:
            pieces = [Said("")]
        return self.take(pieces, logprobs)

    def finish(self, index: int, reason: str) -> bytes:
        data = self.take(self._parser.flush() if self._parser else [], ())
        if not self._output:
            data += self._open_message()
        self._is_cut_short = reason == "length"
        return data + self._close("incomplete" if self._is_cut_short else "completed")

    def end(self, usage: Usage) -> bytes:
        status = "incomplete" if self._is_cut_short else "completed"
        self.last = self._response(status, usage)
        return self._event(f"response.{status}", response=self.last)

    def error(self, error: GatewayError) -> bytes:
        return error_event(error, sequence_number=self._num_events)

    def whole(self, answers: Sequence[WrittenAnswer], usage: Usage) -> Mapping[str, Any]:
        (answer,) = answers
        self.delta(0, answer.text, answer.logprobs)
        self.finish(0, answer.reason)
        return self._response("incomplete" if self._is_cut_short else "completed", usage)

    # -- items -----------------------------------------------------------------------------

    def take(self, pieces: Sequence[Piece], logprobs: Sequence[Any]) -> bytes:
        """The next pieces of the answer; `logprobs` are as the speller takes them."""
        data = b""
        for piece in pieces:
            match piece:
                case Said(text):
                    if not self._is_open or self._output[-1]["type"] != "message":
                        data += self._close("completed") + self._open_message()
                    data += self._say(text, logprobs)
                    logprobs = ()
                case CallBegun(index, name):
                    data += self._close("completed") + self._open_call(index, name)
                case CallArguments(_, text):
                    self._output[-1]["arguments"] += text
                    data += self._delta("response.function_call_arguments.delta", text)
        return data

    def _open_message(self) -> bytes:
        item: Json = {
            "id": f"msg_{self._request_id}_{len(self._output)}",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        data = self._open(item)
        part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        item["content"] = [part]
        return data + self._item_event("response.content_part.added", content_index=0, part=part)

    def _open_call(self, index: int, name: str) -> bytes:
        return self._open(
            {
                "id": f"fc_{self._request_id}_{index}",
                "type": "function_call",
                "status": "in_progress",
                "call_id": f"call_{self._request_id}_{index}",
                "name": name,
                "arguments": "",
            }
        )

    def _open(self, item: Json) -> bytes:
        self._output.append(item)
        self._is_open = True
        at = len(self._output) - 1
        return self._event("response.output_item.added", output_index=at, item=item)

    def _say(self, text: str, logprobs: Sequence[Any]) -> bytes:
        entries = self._spelling.entries(logprobs)
        (part,) = self._output[-1]["content"]
        part["text"] += text
        part["logprobs"] += entries
        return self._delta("response.output_text.delta", text, content_index=0, logprobs=entries)

    def _close(self, status: str) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        item = self._output[-1]
        item["status"] = status
        if item["type"] == "message":
            (part,) = item["content"]
            data = self._item_event(
                "response.output_text.done",
                content_index=0,
                text=part["text"],
                logprobs=part["logprobs"],
            )
            data += self._item_event("response.content_part.done", content_index=0, part=part)
        else:
            arguments = item["arguments"]
            data = self._item_event("response.function_call_arguments.done", arguments=arguments)
        at = len(self._output) - 1
        return data + self._event("response.output_item.done", output_index=at, item=item)

    # -- parts -----------------------------------------------------------------------------

    def _delta(self, kind: str, text: str, **members: Any) -> bytes:
        if self._filler is not None:
            members["obfuscation"] = self._filler(len(json.dumps([text, members])))
        return self._item_event(kind, delta=text, **members)

    def _item_event(self, kind: str, **members: Any) -> bytes:
        at = len(self._output) - 1
        return self._event(kind, item_id=self._output[-1]["id"], output_index=at, **members)

    def _event(self, kind: str, **members: Any) -> bytes:
        value = {"type": kind, "sequence_number": self._num_events, **members}
        self._num_events += 1
        return sse.encode_named(kind, value)

    def _response(self, status: str, usage: Usage | None) -> Json:
        return {
            "id": f"resp_{self._request_id}",
            "object": "response",
            "created_at": self._created_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": _INCOMPLETE if status == "incomplete" else None,
            **self._asked,
            "output": self._output,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
        }


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
