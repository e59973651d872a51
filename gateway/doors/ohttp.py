"""OHTTP at the edge: how is an encapsulated request answered, plain or chunked?  [RFC 9458]

1. Open the body; nothing is acted on before its final chunk verified. 2. Refuse what is old or was
sent before. 3. Run the opened request through the app. 4. Seal what the app sends, as it sends it;
the final chunk is always empty, and an answer that breaks off has none.
Errors of 1 and 2 are problem details outside the seal, all others are inside.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    CHUNKED_RESPONSE_TYPE,
    PLAIN_REQUEST_TYPE,
    PLAIN_RESPONSE_TYPE,
    ChannelError,
    ChunkLimits,
    DecryptFailed,
    PlainServerRequest,
    Rng,
    ServerRequest,
    bhttp,
)
from gateway.channel_keys import ChannelKeys
from gateway.doors.answers import SealedAnswer
from gateway.doors.inner import door_of, has_principal, inner_scope, replaying
from gateway.doors.opening import UnopenedBytes, WholeBody, open_body, refusal, sealed_date
from gateway.problems import GatewayError, response_for

DOOR: Final = "ohttp"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRequest:
    """A request that verified as a whole, and what seals its answer."""

    message: bytes = field(repr=False)
    key_id: int
    enc: bytes
    answer: Callable[[Send], SealedAnswer] = field(repr=False)


Opening = Callable[[AsyncIterator[bytes]], Awaitable[OpenedRequest]]


class OhttpDoor:
    """The endpoint of encapsulated requests; what is inside runs through the app that it is in."""

    def __init__(
        self,
        *,
        keys: ChannelKeys,
        limits: ChunkLimits,
        unopened: UnopenedBytes,
        rng: Rng,
        is_padded: bool,
    ) -> None:
        self._keys = keys
        self._unopened = unopened
        self._limits = limits
        self._rng = rng
        self._is_padded = is_padded
        self._openings: Mapping[str, Opening] = {
            CHUNKED_REQUEST_TYPE: self._open_chunked,
            PLAIN_REQUEST_TYPE: self._open_plain,
        }

    async def respond(self, request: Request) -> Response:
        """A response that runs what was opened when it is sent.

        Raises: GatewayError for a request that does not open, or not for the first time.
        """
        opening = self._openings.get(_media_type(request))
        if opening is None:
            raise GatewayError("unsupported_media_type", f"Send {' or '.join(self._openings)}.")
        return await self._respond(request, opening, request.stream())

    async def respond_chunked(self, request: Request, stream: AsyncIterator[bytes]) -> Response:
        """The same for chunked OHTTP in `stream`, which is what a framing left of the body."""
        return await self._respond(request, self._open_chunked, stream)

    async def _respond(
        self, request: Request, opening: Opening, stream: AsyncIterator[bytes]
    ) -> Response:
        if door_of(request.scope) is not None:
            raise GatewayError("unsupported_media_type", "A sealed request holds no other.")
        try:
            opened = await opening(stream)
        except ChannelError as err:
            raise refusal(err) from None
        try:
            message = bhttp.parse_request(opened.message, drops_connection_fields=True)
        except ChannelError as err:  # it was opened, so the answer is sealed
            refused = response_for(request.scope, refusal(err))
            return _Sealed(opened, refused, request.scope, b"")
        self._keys.require_new(opened.key_id, opened.enc, date=sealed_date(message))
        scope = inner_scope(request.scope, message, door=DOOR)
        forget = partial(self._keys.forget_request, opened.key_id, opened.enc)
        return _Sealed(opened, request.app, scope, message.content, forget=forget)

    async def _open_chunked(self, stream: AsyncIterator[bytes]) -> OpenedRequest:
        sealed = ServerRequest(self._keys.opening(), limits=self._limits)
        message = await open_body(stream, sealed, self._unopened)
        if sealed.key_id is None or sealed.enc is None:
            raise DecryptFailed("malformed")
        sealer = sealed.response_sealer(rng=self._rng)
        answer = partial(
            SealedAnswer,
            media_type=CHUNKED_RESPONSE_TYPE,
            seal_whole=sealer.seal_message,
            sealer=sealer,
            is_padded=self._is_padded,
        )
        return OpenedRequest(message=message, key_id=sealed.key_id, enc=sealed.enc, answer=answer)

    async def _open_plain(self, stream: AsyncIterator[bytes]) -> OpenedRequest:
        limit = self._limits.max_body_bytes
        body = await open_body(stream, WholeBody(max_bytes=limit), self._unopened)
        sealed = PlainServerRequest(self._keys.opening(), body, max_body_bytes=limit)
        answer = partial(
            SealedAnswer,
            media_type=PLAIN_RESPONSE_TYPE,
            seal_whole=partial(sealed.seal_response, rng=self._rng),
            sealer=None,
            is_padded=self._is_padded,
        )
        return OpenedRequest(
            message=sealed.message, key_id=sealed.key_id, enc=sealed.enc, answer=answer
        )


class _Sealed(Response):
    """Runs an app on an opened request, and seals what it sends.

    `forget` is called at the end of a stranger's: he may not fill the memory of replays.
    """

    def __init__(
        self,
        opened: OpenedRequest,
        app: ASGIApp,
        inner: Scope,
        content: bytes,
        *,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._opened = opened
        self._app = app
        self._inner = inner
        self._content = content
        self._forget = forget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._opened.answer(send)
        try:
            await self._app(self._inner, replaying(self._content, receive), answer.send)
        finally:
            if not has_principal(self._inner):
                self._forget()


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
