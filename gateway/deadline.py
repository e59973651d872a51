"""How long may one exchange with a worker take, and what ends it before?"""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from gateway.drain import Drain
from gateway.problems import TOO_LONG, GatewayError

T = TypeVar("T")


class Deadline:
    """Of one exchange, from its making until `close`; a gateway that stops interrupts it.

    One timer serves all that is awaited: a stream awaits each of its events.
    """

    def __init__(self, deadline_s: float, drain: Drain) -> None:
        self._error: GatewayError | None = None  # why it is over
        self._task: asyncio.Task[Any] | None = None  # that awaits
        self._is_cancelled = False  # by us
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(deadline_s, self._on_time)
        self._unregister = drain.register(self._stop)

    @property
    def is_awaiting(self) -> bool:
        """Whether `run` waits now; else it is the client that is waited for."""
        return self._task is not None

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits `work`. Raises: GatewayError when time is up, or as interrupted."""
        task = self._task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is kept in a task")
        num_asked = task.cancelling()  # to stop, by others
        if self._error is not None:
            self._loop.call_soon(self._cancel)  # what is there already may still be taken
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_cancelled:
                self._is_cancelled = False
                if task.uncancel() <= num_asked:
                    raise self._error or _too_late() from None
            raise
        finally:
            self._task = None
            if self._is_cancelled:
                self._is_cancelled = False
                task.uncancel()

    def interrupt(self, error: GatewayError) -> None:
        """Whatever is awaited, or will be, ends with `error`."""
        self._error = error
        self._cancel()

    def close(self) -> None:
        """The exchange is over; idempotent."""
        self._timer.cancel()
        self._unregister()

    def _stop(self) -> None:
        self.interrupt(GatewayError("server_stopping", "The gateway is stopping."))

    def _on_time(self) -> None:
        self.interrupt(self._error or _too_late())

    def _cancel(self) -> None:
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()


def _too_late() -> GatewayError:
    return GatewayError("request_timeout", TOO_LONG)
