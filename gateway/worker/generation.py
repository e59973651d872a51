"""What does one request's reader see of the engine?  Deltas, in order, or why there are no more.

Made by `gateway.worker.bridge`; on the event loop only.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from gateway.problems import GatewayError
from runtime import Delta, GenerationRequest


class GenerationOwner(Protocol):
    """The bridge, as far as a generation needs it."""

    def submit(self, generation: "Generation", request: GenerationRequest) -> None:
        """Raises: GatewayError."""
        ...

    def release(self, request_id: str, *, abort: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """The engine has taken the request."""


Event: TypeAlias = Accepted | Delta | Exception


class Generation:
    """The deltas of one request. Use as an async context manager; leaving it early aborts."""

    def __init__(
        self, bridge: GenerationOwner, request: GenerationRequest, *, number: str, max_pending: int
    ) -> None:
        """`number` is the request's id on the engine's side."""
        self.request_id = request.request_id
        self._bridge = bridge
        self._request = replace(request, request_id=number)
        self._pending: deque[Event] = deque()
        self._max_pending = max_pending
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[Delta], bool] | None = None
        self._is_over = False

    async def __aenter__(self) -> "Generation":
        """Waits until the engine took the request. Raises: GatewayError when it refuses."""
        self._bridge.submit(self, self._request)
        try:
            await self._next()  # Accepted comes first, or an error is raised
        except BaseException:
            self._bridge.release(self._request.request_id, abort=not self._is_over)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._bridge.release(self._request.request_id, abort=not self._is_over)

    async def deltas(self) -> AsyncIterator[Delta]:
        """Until the finishing delta, included. Raises: GatewayError."""
        while not self._is_over:
            event = await self._next()
            if isinstance(event, Delta):
                if event.finish_reason is not None:
                    self._is_over = True
                yield event

    def divert(self, take: Callable[[Delta], bool]) -> None:
        """From now on `take` is offered each delta that comes while `deltas` waits, in the callback
        in which it comes. Where it returns False, `deltas` gives it; what it raises, that raises.
        """
        self._take = take

    def deliver(self, event: Event) -> bool:
        """Called on the loop. False when the reader is too far behind; the stream is then over."""
        if self._take is not None and isinstance(event, Delta) and self._is_awaited():
            try:
                if self._take(event):
                    return True
            except Exception as err:  # whoever reads is told, and no other reader
                event = err
        is_behind = len(self._pending) >= self._max_pending
        if is_behind:
            self._pending.clear()
            event = GatewayError("slow_reader", "The response was read too slowly.")
        self._pending.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return not is_behind

    def _is_awaited(self) -> bool:
        """Whoever reads has passed on all that came before."""
        return self._waiter is not None and not self._waiter.done()

    async def _next(self) -> Event:
        while not self._pending:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        event = self._pending.popleft()
        if isinstance(event, Exception):
            self._is_over = True
            raise event
        return event
