"""Which answers are on their way, and how are all of them ended at once?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.problems import GatewayError


class Streams:
    """Answers that are being passed on; used on the event loop only."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._error: GatewayError | None = None

    @property
    def num_open(self) -> int:
        return len(self._open)

    def interrupt(self, error: GatewayError) -> None:
        """Every answer ends with ``error``, within the next turn of the loop."""
        self._error = error
        now = asyncio.get_running_loop().time()
        for scope in self._open:
            scope.reschedule(now)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Raises: GatewayError, the one of an interrupt."""
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._open.add(scope)
                try:
                    yield
                finally:
                    self._open.discard(scope)
        except TimeoutError:
            if not scope.expired() or self._error is None:
                raise
            raise self._error from None
