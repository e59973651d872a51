"""EHBP at the edge: how is a request on `/v1/*` served whose body alone is sealed?

Method, path and headers are in clear, so the request goes where a plain one goes; its body is
opened on the way in, and what the app sends is sealed on the way out.  [Encrypted HTTP Body
Protocol]
"""

from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attestation.channel import ChannelError, ChunkLimits, DecryptFailed, Rng, ehbp
from gateway.channel_keys import ChannelKeys
from gateway.doors.inner import door_of, has_principal, marked, replaying
from gateway.doors.opening import UnopenedBytes, open_body, refusal
from gateway.limits import BodyLimit, RequestLimits
from gateway.problems import EHBP_KEY, GatewayError, key_config_response, response_for

DOOR: Final = "ehbp"
PATH_PREFIX: Final = "/v1/"
_KEY_FIELD: Final = ehbp.ENCAPSULATED_KEY_FIELD.encode()
_NONCE_FIELD: Final = ehbp.RESPONSE_NONCE_FIELD.encode()
_CHANGED_FIELDS: Final = frozenset({_KEY_FIELD, b"content-length", b"transfer-encoding"})


class EhbpDoor:
    """Middleware: requests without the protocol's field pass as they are."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: ChannelKeys,
        limits: RequestLimits,
        unopened: UnopenedBytes,
        rng: Rng,
    ) -> None:
        self._app = app
        self._unopened = unopened
        self._keys = keys
        self._limits = ChunkLimits(max_body_bytes=limits.max_sealed_bytes)
        self._rng = rng
        self._bounded = BodyLimit(self._serve, limits=limits, is_sealed=lambda _scope: True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http" and scope["path"].startswith(PATH_PREFIX)
        is_sealed = is_request and any(name == _KEY_FIELD for name, _ in scope["headers"])
        await (self._bounded if is_sealed else self._app)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened, body = await self._open(scope, receive)
        except GatewayError as err:
            await _refusal_response(scope, err)(scope, receive, send)
            return
        answer = _EhbpAnswer(send, opened.response_sealer(rng=self._rng))
        inner = _inner_scope(scope, body)
        try:
            await self._app(inner, replaying(body, receive), answer.send)
        finally:
            if not has_principal(inner) and opened.key_id is not None:
                self._keys.forget_request(opened.key_id, opened.enc)

    async def _open(self, scope: Scope, receive: Receive) -> tuple[ehbp.EhbpServerRequest, bytes]:
        """Raises: GatewayError."""
        values = [value for name, value in scope["headers"] if name == _KEY_FIELD]
        try:
            if len(values) > 1 or door_of(scope) is not None:
                raise DecryptFailed("malformed")
            opened = ehbp.EhbpServerRequest(
                self._keys.opening().values(),
                ehbp.parse_field(values[0].decode("latin-1")),
                limits=self._limits,
            )
            body = await open_body(_stream(scope, receive), opened, self._unopened)
        except ChannelError as err:
            raise refusal(err) from None
        if opened.key_id is None:
            raise refusal(DecryptFailed("truncated"))
        self._keys.require_new(opened.key_id, opened.enc, date=None)
        return opened, body


class _EhbpAnswer:
    """The `send` of an app whose request's body came sealed."""

    def __init__(self, send: Send, sealer: ehbp.EhbpResponseSealer) -> None:
        self._send = send
        self._sealer = sealer

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(n, v) for n, v in message.get("headers", ()) if n not in _CHANGED_FIELDS]
            nonce = (_NONCE_FIELD, self._sealer.nonce.hex().encode())
            message = {**message, "headers": [*kept, nonce]}
        elif message["type"] == "http.response.body":
            message = {**message, "body": self._sealer.seal_chunk(message.get("body", b""))}
        await self._send(message)


def _inner_scope(scope: Scope, body: bytes) -> Scope:
    kept = [(name, value) for name, value in scope["headers"] if name not in _CHANGED_FIELDS]
    length = (b"content-length", str(len(body)).encode())
    return marked({**scope, "headers": [*kept, length]}, DOOR)


def _stream(scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
    return Request(scope, receive).stream()


def _refusal_response(scope: Scope, err: GatewayError) -> Response:
    if err.code == "key_config_error":
        return key_config_response(scope, err, problem_type=EHBP_KEY)
    return response_for(scope, err)
