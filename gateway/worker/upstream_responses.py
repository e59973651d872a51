"""How does a server that only chats answer a request for a response?  By the chat that it is.

The chat is streamed in any case: the same events make the stream of a response and its whole. What
such a server thinks aloud is no part of a response.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gateway import sse
from gateway.calls import MALFORMED, Call, public_code
from gateway.chat_call import chat_call
from gateway.problems import GatewayError
from gateway.schemas import inner_body
from gateway.schemas.responses import (
    ResponseRequest,
    in_words_of_a_response,
    parse_response_request,
    without_implied_strictness,
)
from gateway.schemas.sampling import StreamOptions
from gateway.schemas.wire import parse_object
from gateway.worker.inner import InnerRequest
from gateway.worker.obfuscation import Filler
from gateway.worker.outcome import Usage
from gateway.worker.response_job import repeated
from gateway.worker.response_writer import ResponseWriter
from gateway.worker.tool_calls import CallArguments, CallBegun, Piece, Said

Json = dict[str, Any]


class _AsTold:
    """Log probabilities come from the server in the shape that clients get."""

    def entries(self, found: Sequence[Any]) -> list[Json]:
        return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseByChat:
    """One response: the chat to ask for, and the writer of what comes of it."""

    asked: ResponseRequest
    call: Call
    writer: ResponseWriter

    @classmethod
    def of(
        cls, request: InnerRequest, *, unix_s: Callable[[], float], filler: Filler
    ) -> "ResponseByChat":
        """Raises: GatewayError."""
        asked, chat = parse_response_request(request.body)
        chat = without_implied_strictness(asked, chat)  # no server has it that way
        options = StreamOptions(include_usage=True, include_obfuscation=False)
        streamed = chat.model_copy(update={"stream": True, "stream_options": options})
        writer = ResponseWriter(
            request_id=request.request_id,
            created_s=int(unix_s()),
            asked=repeated(asked, chat),
            spelling=_AsTold(),
            tool_names=(),  # the server takes calls from the text itself
            filler=filler if asked.wants_obfuscation else None,
        )
        return cls(asked=asked, call=chat_call(parse_object(inner_body(streamed))), writer=writer)

    async def events(self, chat: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """First an empty item once the server accepted. A failure becomes the last event."""
        async with aclosing(self._built(chat)) as built:
            yield await anext(built)
            try:
                async for data in built:
                    yield data
            except GatewayError as err:
                yield self.writer.error(err)

    async def whole(self, chat: AsyncGenerator[bytes, None]) -> Json:
        """Raises: GatewayError."""
        async with aclosing(self._built(chat)) as built:
            async for _ in built:
                pass
        return self.writer.last

    async def _built(self, chat: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        reason, usage = "stop", None
        try:
            async with aclosing(_chunks(chat)) as chunks:
                async for chunk in chunks:
                    if chunk is None:
                        yield b""
                        yield self.writer.start()
                        continue
                    for choice in chunk["choices"]:
                        logprobs = (choice.get("logprobs") or {}).get("content") or ()
                        pieces = list(_pieces(choice["delta"]))
                        if logprobs and not pieces:
                            pieces = [Said("")]
                        if data := self.writer.take(pieces, logprobs):
                            yield data
                        reason = choice["finish_reason"] or reason
                    if chunk.get("usage") is not None:
                        usage = _usage(chunk["usage"])
        except GatewayError as err:
            raise in_words_of_a_response(err) from err
        except MALFORMED:
            raise GatewayError(
                "generation_failed", "The model server's answer broke off."
            ) from None
        if usage is None:
            raise GatewayError("generation_failed", "The model server told no usage.")
        yield self.writer.finish(0, "length" if reason == "length" else "stop")
        yield self.writer.end(usage)


async def _chunks(chat: AsyncGenerator[bytes, None]) -> AsyncGenerator[Json | None, None]:
    """None once the server accepted, then its chunks. Raises: GatewayError, the MALFORMED ones."""
    splitter = sse.EventSplitter()
    async with aclosing(chat):
        async for data in chat:
            if not data:
                yield None
            for event in splitter.feed(data):
                said = sse.event_data(event)
                if said == sse.DONE_DATA:
                    continue
                chunk: Json = json.loads(said)
                if "error" in chunk:
                    error = chunk["error"]
                    raise GatewayError(public_code(error["code"]), str(error["message"]))
                yield chunk


def _pieces(delta: Json) -> Iterator[Piece]:
    if delta.get("content"):
        yield Said(str(delta["content"]))
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        if function.get("name"):
            yield CallBegun(int(call["index"]), str(function["name"]))
        if function.get("arguments"):
            yield CallArguments(int(call["index"]), str(function["arguments"]))


def _usage(usage: Json) -> Usage:
    return Usage(
        prompt_tokens=int(usage["prompt_tokens"]),
        cached_tokens=int(usage["prompt_tokens_details"]["cached_tokens"]),
        output_tokens=int(usage["completion_tokens"]),
    )
