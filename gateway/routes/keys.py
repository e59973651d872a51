"""The sealed doors' own paths: which keys does the edge open sealed requests with?

Open to everyone, like the Evidence that attests them. The list is RFC 9458's; published clients of
EHBP want one bare configuration instead.
"""

import asyncio
import hashlib
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from attestation.channel import KEY_LIST_TYPE, ehbp, serialize_key_configs
from gateway.services import Services, services_of

MAX_AGE_S: Final = 300


async def key_list(request: Request) -> Response:
    """The Active and Pending keys, the one to use first; the ETag is the keyset's digest."""
    services = services_of(request)
    published = services.edge_keys.published
    is_bare = services.has_bare_key_list  # for clients that read one configuration, not a list
    body = published[0].serialize() if is_bare else serialize_key_configs(published)
    return await _cacheable(request, services, body)


async def ehbp_key(request: Request) -> Response:
    """The Active key for EHBP, bare: without the length that a list puts before it."""
    services = services_of(request)
    config = next(
        config
        for config in services.edge_keys.published
        if config.symmetric == ehbp.OFFER.symmetric
    )
    return await _cacheable(request, services, config.serialize())


async def encapsulated(request: Request) -> Response:
    """POST: one sealed request, plain or chunked, through the app that it reached."""
    return await services_of(request).ohttp_door.respond(request)


async def tng(request: Request) -> Response:
    """POST to `/`: TNG's own framing."""
    services = services_of(request)
    return await services.tng_door.respond(request, now=services.utc_now())


async def _cacheable(request: Request, services: Services, body: bytes) -> Response:
    etag = f'"{await _digest(services, body)}"'
    fresh_s = min(MAX_AGE_S, int(services.edge_keys.ring.next_change_in_s))
    headers = {"etag": etag, "cache-control": f"max-age={fresh_s}"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=KEY_LIST_TYPE, headers=headers)


async def _digest(services: Services, body: bytes) -> str:
    """Of the keyset that attests the keys now; of the list itself where nothing attests."""
    if services.attester is None:
        return hashlib.sha256(body).hexdigest()
    return await asyncio.to_thread(services.attester.keyset_sha256)
