"""How does a test run a real server?  Ours, in a thread, on a Unix socket or on a TLS port."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TypeVar

import httpx
import uvicorn
import uvicorn.server

from gateway.bounded_server import BoundedServer
from tests.support.patience import PATIENCE_S

T = TypeVar("T")


def _sleep_less(delay_s: float) -> Coroutine[Any, Any, None]:
    return asyncio.sleep(delay_s / 20)


# uvicorn looks every 0.1 s whether it is to stop, and then for as long whether it has.
vars(uvicorn.server)["asyncio"] = SimpleNamespace(**vars(asyncio) | {"sleep": _sleep_less})


class ServerThread:
    """Serves `app` between `start` and `stop`; also a context manager."""

    def __init__(
        self,
        app: Any,
        *,
        uds: Path | None = None,
        context: ssl.SSLContext | None = None,
        drain_s: int = 5,
        server: type[uvicorn.Server] = BoundedServer,
    ) -> None:
        self.app = app
        self.port = 0
        self._listener = _listen(uds)
        if uds is None:
            self.port = self._listener.getsockname()[1]
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=drain_s,
            ssl_context_factory=None if context is None else lambda _config, _default: context,
        )
        self._server = server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        return self

    def drain(self) -> None:
        """What a signal does in a process of its own: the app begins to drain."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.app.begin_drain)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the server's own loop and waits for it."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def settle(self) -> None:
        """Waits until every request that runs now has ended: much of what is noted of one is
        noted after the last byte of its answer.
        """
        running = self._server.server_state.tasks.copy()
        deadline = time.monotonic() + PATIENCE_S
        while not all(task.done() for task in running):
            assert time.monotonic() < deadline, "a request that was answered does not end"
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._listener.close()
        if self._thread.is_alive():
            raise RuntimeError("the server did not stop")

    def stop_if_running(self) -> None:
        if self._thread.is_alive():
            self.stop()

    def kill(self) -> None:
        """Cuts every connection, as a process that dies does."""
        self._server.should_exit = True
        self._server.force_exit = True
        self._listener.close()
        self.cut()
        self._thread.join(PATIENCE_S)

    def cut(self) -> None:
        """Cuts every connection; new ones are welcome."""
        loop = self.loop
        if loop is not None:
            for connection in tuple(self._server.server_state.connections):
                loop.call_soon_threadsafe(connection.transport.abort)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_if_running()

    def _run(self) -> None:
        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._listener])

        asyncio.run(serve())


def unix_client(socket_path: Path, **options: Any) -> httpx.Client:
    """Asks who listens there, without the CA certificates that httpx would read for nothing."""
    transport = httpx.HTTPTransport(uds=str(socket_path), verify=False)
    given = {"transport": transport, "base_url": "http://socket", "timeout": PATIENCE_S}
    return httpx.Client(**{**given, **options})


def free_port() -> int:
    """That nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _listen(uds: Path | None) -> socket.socket:
    if uds is None:
        # asyncio sends at once where it knows that it is TCP; else answers wait 40 ms for an ACK
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
    else:
        uds.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(uds))
    listener.listen(128)
    listener.setblocking(False)
    return listener
