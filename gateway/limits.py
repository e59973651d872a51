"""How much may one client cost?  Body size, time to send it, concurrent requests; pure ASGI."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import GatewayError, response_for


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Bounds on one request, and on how many may be open."""

    max_body_bytes: int = 1 << 20
    max_concurrent_streams: int = 256
    body_deadline_s: float = 30.0


class BodyLimit:
    """Refuses a body over the cap while it is read, and a body that arrives too slowly.

    The error is raised from ``receive``, so the app's own handler answers it.
    """

    def __init__(self, app: ASGIApp, *, limits: RequestLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared_bytes = _content_length(scope)
        if declared_bytes is not None and declared_bytes > self._limits.max_body_bytes:
            await response_for(scope, self._too_large())(scope, receive, send)
            return
        await self._app(scope, self._bounded(receive), send)

    def _bounded(self, receive: Receive) -> Receive:
        deadline_s: float | None = None
        num_bytes, is_whole = 0, False

        async def bounded() -> Message:
            nonlocal deadline_s, num_bytes, is_whole
            if is_whole:
                return await receive()  # only a disconnect is left; that may take for ever
            if deadline_s is None:
                deadline_s = asyncio.get_running_loop().time() + self._limits.body_deadline_s
            try:
                async with asyncio.timeout_at(deadline_s):
                    message = await receive()
            except TimeoutError:
                raise GatewayError(
                    "request_timeout", "The request body did not arrive in time."
                ) from None
            num_bytes += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if num_bytes > self._limits.max_body_bytes:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> GatewayError:
        return GatewayError(
            "body_too_large", f"The request body exceeds {self._limits.max_body_bytes} bytes."
        )


class ConcurrencyLimit:
    """Answers `overloaded` at once when too many requests of the counted paths are open."""

    def __init__(self, app: ASGIApp, *, max_open: int, counts: Callable[[Scope], bool]) -> None:
        self._app = app
        self._max_open = max_open
        self._counts = counts
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._counts(scope):
            await self._app(scope, receive, send)
            return
        if self._num_open >= self._max_open:
            error = GatewayError("overloaded", "Too many requests are open; retry shortly.")
            await response_for(scope, error)(scope, receive, send)
            return
        self._num_open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._num_open -= 1


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return None
