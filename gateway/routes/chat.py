"""POST /v1/chat/completions: whole and streamed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway import sse
from gateway.auth import tenant_in_spans
from gateway.observe import ChatTrace
from gateway.problems import GatewayError
from gateway.relay import ChatExchange
from gateway.schemas import ChatRequest, inner_body, parse_chat_request
from gateway.services import Services, authenticated, require_not_draining, services_of
from gateway.streaming import StreamedBody, until_disconnected

JSON: Final = "application/json"


async def chat_completions(request: Request) -> Response:
    """One request from its first byte to its last; the trace is finished however it ends."""
    services = services_of(request)
    trace = services.tracing.start_chat(
        request_id=services.new_request_id(), traceparent=request.headers.get("traceparent")
    )
    try:
        response = await _answer(request, services, trace)
    except BaseException as err:
        trace.facts.fail(_code_of(err))
        trace.finish()
        raise
    response.headers["x-request-id"] = trace.facts.request_id
    return response


async def _answer(request: Request, services: Services, trace: ChatTrace) -> Response:
    principal = await authenticated(request)
    trace.facts.tenant = tenant_in_spans(principal.tenant)
    require_not_draining(services)
    chat = await _read_chat(request)
    trace.facts.is_streamed = chat.is_streamed
    trace.facts.max_tokens = chat.output_token_limit
    directory = services.directory
    if directory.knows(chat.model) or chat.model in await directory.models():
        trace.facts.model = chat.model  # only names that we know reach a span
    opening = services.relay.open(chat, inner_body(chat), principal, trace)
    exchange = await until_disconnected(request.receive, opening)
    if chat.is_streamed:
        streamed = _Streamed(exchange, trace)
        return StreamedBody(streamed.events(), on_close=streamed.close, media_type=sse.MEDIA_TYPE)
    try:
        body = await until_disconnected(request.receive, exchange.whole())
    finally:
        await exchange.aclose()
    trace.finish()
    return Response(body, media_type=JSON, headers={"cache-control": "no-store"})


async def _read_chat(request: Request) -> ChatRequest:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise GatewayError("unsupported_media_type", f"Send the request as {JSON}.")
    try:
        return parse_chat_request(await request.body())
    except ClientDisconnect:
        raise GatewayError("client_disconnected", "The client went away.") from None


class _Streamed:
    """One streamed answer; `close` runs exactly once, however it ended."""

    def __init__(self, exchange: ChatExchange, trace: ChatTrace) -> None:
        self._exchange = exchange
        self._trace = trace
        self._is_whole = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._exchange.events()) as events:
            async for data in events:
                yield data
        self._is_whole = True

    async def close(self) -> None:
        if not self._is_whole and self._trace.facts.error_code is None:
            self._trace.facts.fail("client_disconnected")
        self._trace.finish()
        await self._exchange.aclose()


def _code_of(err: BaseException) -> str:
    if isinstance(err, GatewayError):
        return err.code
    return "client_disconnected" if isinstance(err, asyncio.CancelledError) else "internal_error"
