"""How does a worker open what is sealed to it, and seal what it answers?

Sizes on the hop are padded like those at the edge: streams to buckets, whole answers in one piece.
"""

from collections.abc import AsyncGenerator

from starlette.requests import Request

from attestation.channel import ChannelError, ResponseSealer, ServerRequest, bhttp
from attestation.channel.padding import pad_events, padding_for
from gateway import sse
from gateway.doors.opening import open_body, refusal
from gateway.worker.inner import InnerResponse


async def open_request(request: Request, opened: ServerRequest) -> bhttp.Request:
    """The whole verified message. Raises: GatewayError with a fixed text per code."""
    try:
        return bhttp.parse_request(await open_body(request.stream(), opened))
    except ChannelError as err:
        raise refusal(err) from None


async def sealed_response(
    response: InnerResponse, sealer: ResponseSealer
) -> AsyncGenerator[bytes, None]:
    """The bytes of the answer as they are made; an exception leaves no final chunk."""
    fields = (("content-type", response.media_type),)
    if not response.media_type.startswith(sse.MEDIA_TYPE):
        content = b"".join([data async for data in response.body])
        whole = bhttp.Response(status=response.status, fields=fields, content=content)
        message = bhttp.serialize_response(whole)
        yield sealer.seal_message(message + bytes(padding_for(len(message))))
        return
    head = bhttp.ResponseHead(status=response.status, fields=fields)
    pending = sealer.start() + sealer.seal_chunk(bhttp.serialize_response_head(head))
    async for data in response.body:
        yield pending + sealer.seal_chunk(bhttp.serialize_content_chunk(pad_events(data)))
        pending = b""
    yield pending + sealer.seal_chunk(bhttp.serialize_end()) + sealer.seal_final()
