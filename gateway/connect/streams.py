"""Which answers are on their way, and how are all of them ended, at once or in a while?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.problems import GatewayError


class Streams:
    """Answers that are being waited for or passed on; used on the event loop only."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()

    @property
    def num_open(self) -> int:
        return len(self._open)

    def open(self) -> "Stream":
        """One more, until it is closed."""
        stream = Stream(self._open)
        self._open.add(stream)
        return stream

    def interrupt(self, error: GatewayError, *, after_s: float = 0.0) -> None:
        """Every answer that is open now ends with ``error``, unless it has ended by then."""
        at_s = asyncio.get_running_loop().time() + after_s
        for stream in self._open:
            stream.end(error, at_s=at_s)


class Stream:
    """One answer, from the moment that its request is sent."""

    def __init__(self, group: "set[Stream]") -> None:
        self._group = group
        self._scope: asyncio.Timeout | None = None
        self._error: GatewayError | None = None
        self._ends_at_s: float | None = None

    def end(self, error: GatewayError, *, at_s: float) -> None:
        """The earliest of several ends counts; ``at_s`` is by the event loop's clock."""
        if self._ends_at_s is not None and self._ends_at_s <= at_s:
            return
        self._error, self._ends_at_s = error, at_s
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(at_s)

    def close(self) -> None:
        self._group.discard(self)

    @contextlib.asynccontextmanager
    async def interruptible(self) -> AsyncIterator[None]:
        """A part of its life; what ended between two parts ends the second.

        Raises: GatewayError, the one of the end.
        """
        scope = asyncio.timeout_at(self._ends_at_s)
        try:
            async with scope:
                self._scope = scope
                try:
                    yield
                finally:
                    self._scope = None
        except TimeoutError:
            if not scope.expired() or self._error is None:
                raise
            raise self._error from None
