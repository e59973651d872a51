"""How is a POST that a worker answers served?  Every endpoint of gateway.endpoints alike."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway import sse
from gateway.auth import tenant_in_spans
from gateway.calls import Call
from gateway.endpoints import Endpoint
from gateway.observe import RequestTrace
from gateway.pins import HEADER as PIN_HEADER
from gateway.pins import parse_pins, require_gateway_pins, require_worker_pins
from gateway.problems import GatewayError
from gateway.schemas.wire import parse_object
from gateway.services import (
    Services,
    authenticated,
    note_sampling,
    open_receipt,
    require_not_draining,
    services_of,
)
from gateway.streaming import StreamedBody, until_disconnected

JSON: Final = "application/json"


def serving(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """The route's function."""

    async def serve(request: Request) -> Response:
        return await _serve(request, endpoint)

    return serve


async def _serve(request: Request, endpoint: Endpoint) -> Response:
    """One request from its first byte to its last; the trace is finished however it ends."""
    services = services_of(request)
    if services.doors.mode == "pass-through":  # a client that pinned the mode must not slip out
        raise GatewayError(
            "unsupported_media_type", "This gateway reads no request: send it sealed to /ohttp."
        )
    trace = services.tracing.start_request(
        request_id=services.new_request_id(),
        traceparent=request.headers.get("traceparent"),
        route=endpoint.path,
        operation=endpoint.operation,
    )
    trace.at_end(services.counts.ended)
    receipt = open_receipt(request)
    if receipt is not None:
        receipt.facts = trace.facts
    try:
        response = await _answer(request, endpoint, services, trace)
    except BaseException as err:
        trace.facts.fail(code_of(err))
        trace.finish()
        raise
    response.headers["x-request-id"] = trace.facts.request_id
    return response


async def _answer(
    request: Request, endpoint: Endpoint, services: Services, trace: RequestTrace
) -> Response:
    principal = await authenticated(request)
    trace.facts.tenant = tenant_in_spans(principal.tenant)
    principal.require(endpoint.scope)
    require_not_draining(services)
    pins = parse_pins(request.headers.getlist(PIN_HEADER))
    await require_gateway_pins(pins, services.attester)
    admission = services.quotas.enter(principal)
    trace.at_end(admission.end)
    call = await _read_call(request, endpoint)
    trace.facts.is_streamed = call.is_streamed
    trace.facts.max_tokens = call.max_tokens
    directory = services.directory
    if directory.knows(call.model) or call.model in await directory.models():
        trace.facts.model = call.model  # only names that we know reach a span
    require_worker_pins(pins, directory.nodes, call.model, now=services.utc_now())
    admission.admit(call)
    limits = {"cache-control": "no-store", **admission.headers()}
    opening = services.relay.open(call, principal, trace, pins=pins)
    exchange = await until_disconnected(request.receive, opening)
    if call.is_streamed:
        body = StreamedBody(
            exchange.events(),
            on_close=exchange.aclose,
            media_type=sse.MEDIA_TYPE,
            slot=exchange.slot,
        )
        body.headers.update(limits)
        return traced(body, trace)
    try:
        whole = await until_disconnected(request.receive, exchange.whole())
    finally:
        await exchange.aclose()
    trace.finish()
    return Response(whole, media_type=JSON, headers=limits)


async def _read_call(request: Request, endpoint: Endpoint) -> Call:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise GatewayError("unsupported_media_type", f"Send the request as {JSON}.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise GatewayError("unsupported_media_type", "Send the request without Content-Encoding.")
    try:
        body = await request.body()
    except ClientDisconnect:
        raise GatewayError("client_disconnected", "The client went away.") from None
    asked = parse_object(body)
    call = endpoint.validate(asked)
    note_sampling(request, asked)
    return call


def traced(body: StreamedBody, trace: RequestTrace) -> StreamedBody:
    """`body`, with whose end `trace` is finished, and told how it ended."""
    source, close, facts, is_whole = body.source, body.on_close, trace.facts, False

    def fail(code: str, *, status: int | None = None) -> None:
        if facts.error_code is None:
            facts.fail(code, status=status)

    async def events() -> AsyncGenerator[bytes, None]:
        nonlocal is_whole
        try:
            async with aclosing(source):
                async for data in source:
                    yield data
        except Exception as err:
            fail(code_of(err), status=200)
            raise
        is_whole = True

    async def finish() -> None:
        if not is_whole:
            fail("client_disconnected")
        trace.finish()
        await close()

    body.source, body.on_close = events(), finish
    body.on_slow_reader = partial(fail, "slow_reader", status=200)
    return body


def code_of(err: BaseException) -> str:
    if isinstance(err, GatewayError):
        return err.code
    return "client_disconnected" if isinstance(err, asyncio.CancelledError) else "internal_error"
