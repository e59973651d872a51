"""The sealed doors' own paths: which keys may be sealed to, and where does what is sealed go?

The lists are open to everyone, like the Evidence that attests them. RFC 9458 has a list; published
clients of EHBP want one bare configuration instead.
"""

import asyncio
import hashlib
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from attestation.channel import KEY_LIST_TYPE
from gateway.auth import tenant_in_spans
from gateway.doors.edge import KeyList
from gateway.endpoints import ENDPOINTS
from gateway.pins import HEADER as PIN_HEADER
from gateway.pins import parse_pins, require_gateway_pins
from gateway.routes.inference import code_of, traced
from gateway.services import Services, authenticated, require_not_draining, services_of
from gateway.streaming import StreamedBody
from telemetry import semconv

MAX_AGE_S: Final = 300
_INFERENCE_SCOPES: Final = frozenset(endpoint.scope for endpoint in ENDPOINTS)


async def key_list(request: Request) -> Response:
    """Keys to seal to, the one to use first; the ETag is the digest of the attested keyset."""
    doors = services_of(request).doors
    return await _cacheable(request, await doors.key_list(request.query_params.get("model")))


async def ehbp_key(request: Request) -> Response:
    """The key for EHBP, bare."""
    return await _cacheable(request, services_of(request).doors.ehbp_key())


async def encapsulated(request: Request) -> Response:
    """POST: one sealed request, opened here or passed on."""
    services = services_of(request)
    if services.doors.mode == "pass-through":
        return await _passed_on(request, services)
    return await services.doors.respond(request)


async def tng(request: Request) -> Response:
    """POST to `/`: TNG's own framing."""
    services = services_of(request)
    return await services.doors.respond_tng(request, now=services.utc_now())


async def _passed_on(request: Request, services: Services) -> Response:
    """Who asks is told outside the seal here, where alone it can be read; nothing else is."""
    trace = services.tracing.start_request(
        request_id=services.new_request_id(),
        traceparent=None,
        route=request.url.path,
        operation=semconv.OPERATION_SEALED,
    )
    trace.at_end(services.counts.ended)
    try:
        principal = await authenticated(request)
        trace.facts.tenant = tenant_in_spans(principal.tenant)
        for scope in sorted(_INFERENCE_SCOPES):  # which it needs is sealed
            principal.require(scope)
        require_not_draining(services)
        pins = parse_pins(request.headers.getlist(PIN_HEADER))
        await require_gateway_pins(pins, services.attester)
        trace.at_end(services.quotas.enter(principal).end)
        response = await services.doors.respond(request)
    except BaseException as err:
        trace.facts.fail(code_of(err))
        trace.finish()
        raise
    if not isinstance(response, StreamedBody):
        trace.finish()
        return response
    response.headers["x-request-id"] = trace.facts.request_id
    return traced(response, trace)


async def _cacheable(request: Request, keys: KeyList) -> Response:
    etag = f'"{await _digest(services_of(request), keys.body)}"'
    fresh_s = max(0, min(MAX_AGE_S, int(keys.fresh_s)))
    headers = {"etag": etag, "cache-control": f"max-age={fresh_s}"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(keys.body, media_type=KEY_LIST_TYPE, headers=headers)


async def _digest(services: Services, body: bytes) -> str:
    """Of the keyset that attests the keys; of the list itself where it attests none of them."""
    if services.attester is None or services.doors.mode == "pass-through":
        return hashlib.sha256(body).hexdigest()
    return await asyncio.to_thread(services.attester.keyset_sha256)
