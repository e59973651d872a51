"""Which server stands in for vLLM?  One that answers in its words and remembers what it read."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

MODEL = "org/model"
USAGE = {"prompt_tokens": 5, "total_tokens": 7, "completion_tokens": 2}
TEXTS = ("Hel", "lo")
CALL_DELTAS: tuple[dict[str, Any], ...] = (
    {"index": 0, "id": "chatcmpl-tool-1", "type": "function", "function": {"name": "f"}},
    {"index": 0, "function": {"arguments": '{"a"'}},
    {"index": 0, "function": {"arguments": ": 1}"}},
    {"index": 1, "id": "chatcmpl-tool-2", "function": {"name": "g", "arguments": "{}"}},
)


class FakeUpstream:
    """`how` says what becomes of the next answers."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.how = "well"
        self.num_left = 0  # streams whose client went away
        self._app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _models(self, _request: Request) -> Response:
        if self.how == "loading":
            return Response(status_code=503)
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "max_model_len": 4096}]})

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, "chatcmpl-up", lambda text: {"delta": {"content": text}})

    async def _completions(self, request: Request) -> Response:
        return await self._answer(request, "cmpl-up", lambda text: {"text": text})

    async def _embeddings(self, request: Request) -> Response:
        return await self._answer(request, "embd-up", lambda text: {"text": text})

    async def _answer(self, request: Request, answer_id: str, part: Any) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if self.how.isdigit():
            said = "This model's maximum context length is 9" if self.how == "400" else "secret"
            return JSONResponse({"error": {"message": said}}, status_code=int(self.how))
        if body.get("stream"):
            return StreamingResponse(self._events(answer_id, part), media_type="text/event-stream")
        choice = part("".join(TEXTS))
        choice = (
            {"message": {"role": "assistant", **choice["delta"]}} if "delta" in choice else choice
        )
        return JSONResponse(
            {
                "id": answer_id,
                "object": "chat.completion",
                "created": 1,
                "model": MODEL,
                "choices": [{"index": 0, **choice, "finish_reason": "stop", "stop_reason": None}],
                "usage": {**USAGE, "prompt_tokens_details": None},
            }
        )

    async def _events(self, answer_id: str, part: Any) -> AsyncIterator[bytes]:
        def event(choices: list[Any], **more: Any) -> bytes:
            chunk = {"id": answer_id, "object": "chunk", "created": 1, "model": MODEL}
            return b"data: " + json.dumps({**chunk, "choices": choices, **more}).encode() + b"\n\n"

        try:
            for text in TEXTS:
                yield event([{"index": 0, **part(text), "logprobs": None, "finish_reason": None}])
            if self.how == "calls":
                for call in CALL_DELTAS:
                    delta = {"tool_calls": [call]}
                    yield event([{"index": 0, "delta": delta, "finish_reason": None}])
            if self.how == "endless":
                while True:
                    yield event([{"index": 0, **part("x"), "finish_reason": None}])
                    await asyncio.sleep(0.01)
            if self.how == "breaks":
                raise RuntimeError("broken")
            if self.how == "malformed":  # in one read with what was well
                last = {"index": 0, **part("last words"), "finish_reason": None}
                yield event([last]) + b"data: {\n\n"
            if self.how == "error":
                yield b'data: {"error": {"message": "secret", "code": 500}}\n\n'
            yield event([{"index": 0, **part(""), "finish_reason": "stop"}])
            yield event([], usage=USAGE)
            if self.how != "no done":
                yield b"data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.num_left += 1
            raise
