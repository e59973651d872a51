"""How much may one client cost?  Body size, time to send it, concurrent requests; pure ASGI."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import GatewayError, response_for

_SEALED_HEAD_BYTES: Final = 1 << 17
_PLACE: Final = "starshade.take_place"  # in an ASGI scope: what takes one of ClientPlaces


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Bounds on one request, and on how many may be open."""

    max_body_bytes: int = 1 << 20
    max_concurrent_streams: int = 256
    body_deadline_s: float = 30.0

    @property
    def max_sealed_bytes(self) -> int:
        """A sealed body holds a request of the largest size, its head, padding and framing."""
        return 2 * self.max_body_bytes + _SEALED_HEAD_BYTES


class BodyLimit:
    """Refuses a body over the cap while it is read, and a body that arrives too slowly.

    The error is raised from ``receive``, so the app's own handler answers it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: RequestLimits,
        is_sealed: Callable[[Scope], bool] = lambda _scope: False,
    ) -> None:
        """`is_sealed` tells bodies that hold a whole request, which may be somewhat larger."""
        self._app = app
        self._limits = limits
        self._is_sealed = is_sealed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limits = self._limits
        most = limits.max_sealed_bytes if self._is_sealed(scope) else limits.max_body_bytes
        declared_bytes = _content_length(scope)
        if declared_bytes is not None and declared_bytes > most:
            await response_for(scope, _too_large(most))(scope, receive, send)
            return
        await self._app(scope, self._bounded(receive, most), send)

    def _bounded(self, receive: Receive, max_bytes: int) -> Receive:
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
            if num_bytes > max_bytes:
                raise _too_large(max_bytes)
            return message

        return bounded


class _Places:
    """So many that requests of the counted paths take and leave."""

    def __init__(self, app: ASGIApp, *, max_open: int, counts: Callable[[Scope], bool]) -> None:
        self._app = app
        self._max_open = max_open
        self._counts = counts
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_counted = scope["type"] == "http" and self._counts(scope)
        await (self._bounded if is_counted else self._app)(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    def _take(self) -> None:
        if self._num_open >= self._max_open:
            raise GatewayError("overloaded", "Too many requests are open; retry shortly.")
        self._num_open += 1


class ConcurrencyLimit(_Places):
    """Answers `overloaded` at once when too many requests of the counted paths are open."""

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._take()
        except GatewayError as err:
            await response_for(scope, err)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._num_open -= 1


class ClientPlaces(_Places):
    """Bounds how many requests of clients are open.

    A request takes its place with `take_place`, once it is known whose it is, and has it until it
    ends: strangers have none.
    """

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_taken = 0

        def take() -> None:
            nonlocal num_taken
            self._take()
            num_taken += 1

        scope[_PLACE] = take
        try:
            await self._app(scope, receive, send)
        finally:
            self._num_open -= num_taken


def take_place(scope: Scope) -> None:
    """For a request that `ClientPlaces` counts. Raises: GatewayError `overloaded`."""
    take: Callable[[], None] | None = scope.get(_PLACE)
    if take is not None:
        take()


def _too_large(max_bytes: int) -> GatewayError:
    return GatewayError("body_too_large", f"The request body exceeds {max_bytes} bytes.")


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return None
