"""How does a worker open what is sealed to it, and seal what it answers?

Sizes on the hop are padded like those at the edge: streams to buckets, whole answers in one piece.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    CHUNKED_RESPONSE_TYPE,
    PLAIN_REQUEST_TYPE,
    PLAIN_RESPONSE_TYPE,
    ChannelError,
    ChunkLimits,
    DecryptFailed,
    PlainServerRequest,
    ResponseSealer,
    Rng,
    ServerKeys,
    ServerRequest,
    bhttp,
)
from attestation.channel.padding import pad_events, padding_for
from gateway import sse
from gateway.direct import DirectSlot
from gateway.doors.opening import WholeBody, open_body, refusal
from gateway.problems import GatewayError
from gateway.worker.inner import InnerResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRequest:
    """What verified as a whole; `seal` makes the bytes of its answer, of `media_type`."""

    message: bytes = field(repr=False)
    key_id: int
    enc: bytes = field(repr=False)
    media_type: str
    seal: Callable[[InnerResponse, DirectSlot], AsyncGenerator[bytes, None]] = field(repr=False)


async def open_request(
    request: Request, keys: ServerKeys, *, limits: ChunkLimits, rng: Rng
) -> OpenedRequest:
    """Chunked, or plain as clients of a gateway that passes requests through may send it.

    Raises: GatewayError with a fixed text per code.
    """
    media_type = request.headers.get("content-type")
    try:
        if media_type == CHUNKED_REQUEST_TYPE:
            return await _open_chunked(request, ServerRequest(keys, limits=limits), rng)
        if media_type == PLAIN_REQUEST_TYPE:
            return await _open_plain(request, keys, limits, rng)
    except ChannelError as err:
        raise refusal(err) from None
    raise GatewayError(
        "unsupported_media_type", f"Send {CHUNKED_REQUEST_TYPE} or {PLAIN_REQUEST_TYPE}."
    )


async def _open_chunked(request: Request, opened: ServerRequest, rng: Rng) -> OpenedRequest:
    message = await open_body(request.stream(), opened)
    if opened.key_id is None or opened.enc is None:
        raise DecryptFailed("malformed")
    return OpenedRequest(
        message=message,
        key_id=opened.key_id,
        enc=opened.enc,
        media_type=CHUNKED_RESPONSE_TYPE,
        seal=partial(_seal_chunked, opened.response_sealer(rng=rng)),
    )


async def _open_plain(
    request: Request, keys: ServerKeys, limits: ChunkLimits, rng: Rng
) -> OpenedRequest:
    limit = limits.max_body_bytes
    body = await open_body(request.stream(), WholeBody(max_bytes=limit))
    opened = PlainServerRequest(keys, body, max_body_bytes=limit)
    return OpenedRequest(
        message=opened.message,
        key_id=opened.key_id,
        enc=opened.enc,
        media_type=PLAIN_RESPONSE_TYPE,
        seal=partial(_seal_whole, partial(opened.seal_response, rng=rng)),
    )


async def _seal_chunked(
    sealer: ResponseSealer, response: InnerResponse, slot: DirectSlot
) -> AsyncGenerator[bytes, None]:
    """A stream as it is made; an exception leaves no final chunk."""
    if not response.media_type.startswith(sse.MEDIA_TYPE):
        async for data in _seal_whole(sealer.seal_message, response, slot):
            yield data
        return

    def sealed(data: bytes) -> bytes:
        return sealer.seal_chunk(bhttp.serialize_content_chunk(pad_events(data)))

    head = bhttp.ResponseHead(status=response.status, fields=_fields(response))
    pending = sealer.start() + sealer.seal_chunk(bhttp.serialize_response_head(head))
    async for data in response.body:
        yield pending + sealed(data)
        pending = b""
        response.slot.fill_through(slot, sealed)  # now that the head is out
    yield pending + sealer.seal_chunk(bhttp.serialize_end()) + sealer.seal_final()


async def _seal_whole(
    seal: Callable[[bytes], bytes], response: InnerResponse, _slot: DirectSlot
) -> AsyncGenerator[bytes, None]:
    content = b"".join([data async for data in response.body])
    whole = bhttp.Response(status=response.status, fields=_fields(response), content=content)
    message = bhttp.serialize_response(whole)
    yield seal(message + bytes(padding_for(len(message))))


def _fields(response: InnerResponse) -> bhttp.Fields:
    return (("content-type", response.media_type), *response.fields)
