"""How does one request of a local program reach the attested gateway, and its answer the program?

Nothing is read of either but the key: a request that brings none of this product's gets the one
that was given to `starshade connect`. A stream that breaks ends in an error event; any other answer
that breaks is cut, so that it never reads as a whole one.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from attestation.channel import bhttp
from attestation.transport import (
    AttestedTransportError,
    ChannelBroken,
    EvidenceRefused,
    EvidenceUrl,
)
from gateway import sse
from gateway.auth import KEY_PREFIX
from gateway.connect.streams import Stream, Streams
from gateway.problems import GatewayError, openai_body
from gateway.streaming import StreamedBody, until_disconnected

PATH_PREFIX: Final = "/v1"  # the local one
_NOT_FORWARDED: Final = frozenset(  # besides what is about the connection
    {"content-length", "host", "proxy-authorization", "te", "trailer"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarder:
    """``key`` is for requests that bring none."""

    client: httpx.AsyncClient
    target: EvidenceUrl
    key: str | None = field(repr=False)
    streams: Streams

    async def forward(self, request: Request) -> Response:
        """Raises: GatewayError."""
        try:
            content = await request.body()
        except ClientDisconnect:
            raise GatewayError("client_disconnected", "The client went away.") from None
        outgoing = self.client.build_request(
            request.method, self._url(request), headers=self._headers(request), content=content
        )
        if "user-agent" not in request.headers:
            outgoing.headers.pop("user-agent", None)  # httpx's own
        stream = self.streams.open()
        try:
            async with stream.interruptible():
                opening = self.client.send(outgoing, stream=True)
                response = await until_disconnected(request.receive, opening)
        except BaseException as err:
            stream.close()
            if isinstance(err, httpx.HTTPError):
                raise refusal(err) from None
            raise
        return _Forwarded(response, stream)

    def _url(self, request: Request) -> str:
        raw_path: bytes = request.scope.get("raw_path") or request.url.path.encode()
        path = raw_path.decode("ascii").removeprefix(PATH_PREFIX)
        query = request.scope["query_string"].decode("ascii")
        suffix = f"?{query}" if query else ""
        return f"{self.target.origin}{self.target.path_prefix}{path}{suffix}"

    def _headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        headers = _forwarded(request.headers.raw)
        brought = request.headers.get("authorization", "")
        if self.key is None or brought.partition(" ")[2].strip().startswith(KEY_PREFIX):
            return headers
        others = [(name, value) for name, value in headers if name != b"authorization"]
        return [*others, (b"authorization", f"Bearer {self.key}".encode())]


class _Forwarded(StreamedBody):
    """The gateway's answer with its own status and headers, piece by piece."""

    def __init__(self, response: httpx.Response, stream: Stream) -> None:
        media_type = response.headers.get("content-type", "")
        is_stream = media_type.partition(";")[0].strip() == sse.MEDIA_TYPE
        super().__init__(
            _pieces(response, stream, is_stream=is_stream),
            on_close=self._close,
            media_type=media_type,
        )
        self._response = response
        self._stream = stream
        self.status_code = response.status_code
        self.raw_headers = _forwarded(response.headers.raw)

    async def _close(self) -> None:
        self._stream.close()
        await self._response.aclose()


def _forwarded(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """As the bytes that came: a value need not be ASCII [RFC 9110 sec. 5.5]."""
    fields = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in bhttp.without_connection_fields(fields)
        if name not in _NOT_FORWARDED
    ]


async def _pieces(
    response: httpx.Response, stream: Stream, *, is_stream: bool
) -> AsyncGenerator[bytes, None]:
    try:
        async with stream.interruptible():
            async for piece in response.aiter_raw():
                yield piece
    except (httpx.HTTPError, GatewayError) as err:
        error = err if isinstance(err, GatewayError) else refusal(err)
        if not is_stream:
            raise error from None  # the connection is cut
        yield sse.encode_json(openai_body(error))


def refusal(err: httpx.HTTPError) -> GatewayError:
    """What the program is told."""
    if isinstance(err, EvidenceRefused):
        message = f"The gateway did not pass attestation: {err.code}."
        return GatewayError("upstream_verification_failed", message, detail_code=err.code)
    if isinstance(err, ChannelBroken):
        message = "The gateway's sealed answer ended before it was whole."
        return GatewayError("upstream_truncated", message, detail_code=err.code)
    code = err.code if isinstance(err, AttestedTransportError) else None
    return GatewayError("upstream_unavailable", "The gateway cannot be reached.", detail_code=code)
