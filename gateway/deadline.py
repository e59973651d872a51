"""How long may one exchange with a worker take, and what ends it before?"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from gateway.drain import Drain
from gateway.problems import TOO_LONG, GatewayError

T = TypeVar("T")


class Deadline:
    """Of one exchange, from its making until `close`; a gateway that stops interrupts it."""

    def __init__(self, deadline_s: float, drain: Drain) -> None:
        self._end = asyncio.get_running_loop().time() + deadline_s
        self._scope: asyncio.Timeout | None = None
        self._interruption: GatewayError | None = None
        self._unregister = drain.register(self._stop)

    @property
    def is_awaiting(self) -> bool:
        """Whether `run` waits now; else it is the client that is waited for."""
        return self._scope is not None

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits `work`. Raises: GatewayError when time is up, or as interrupted."""
        try:
            async with asyncio.timeout_at(self._end) as self._scope:
                return await work
        except TimeoutError:
            raise self._interruption or GatewayError("request_timeout", TOO_LONG) from None
        finally:
            self._scope = None

    def interrupt(self, error: GatewayError) -> None:
        """Whatever is awaited, or will be, ends with `error`."""
        self._interruption = error
        self._end = asyncio.get_running_loop().time()
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(self._end)

    def close(self) -> None:
        """The exchange is over; idempotent."""
        self._unregister()

    def _stop(self) -> None:
        self.interrupt(GatewayError("server_stopping", "The gateway is stopping."))
