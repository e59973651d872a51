"""How do servers run beside a program that is not asynchronous?  One event loop in a thread."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gateway.bounded_server import BoundedServer
from gateway.servers import server_for

T = TypeVar("T")
DRAIN_S: Final = 1
START_S: Final = 30.0
_POLL_S: Final = 0.01


class LoopThread:
    """Runs coroutines and servers for other threads; a context manager that stops them all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self._servers: list[tuple[BoundedServer, asyncio.Task[None]]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for ``work``; not for use on the loop itself."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def serve(
        self, app: Any, listener: socket.socket, *, context: ssl.SSLContext | None = None
    ) -> None:
        """Serves an ASGI app until the end; returns once it takes requests."""
        self.run(self._serve(server_for(app, drain_s=DRAIN_S, context=context), listener))

    async def _serve(self, server: BoundedServer, listener: socket.socket) -> None:
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        async with asyncio.timeout(START_S):
            while not server.started and not serving.done():
                await asyncio.sleep(_POLL_S)
        if serving.done():
            serving.result()
            raise RuntimeError("a server ended while it started")
        self._servers.append((server, serving))

    async def _stop(self) -> None:
        """The last that was started first."""
        for server, serving in reversed(self._servers):
            server.should_exit = True
            await serving
