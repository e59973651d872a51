"""Does a server stop without waiting for clients that do not listen, and outlive a renewal?"""

import asyncio
import datetime as dt
import http.client
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway import servers, tls
from gateway.bounded_server import BoundedServer
from gateway.paths import Paths
from gateway.probes import client_context
from gateway.servers import server_for
from gateway.sockets import listen_tcp
from tests.gateway.support import make_config
from tests.support.patience import PATIENCE_S

NOW = dt.datetime.now(dt.UTC)  # noqa: TID251 - OpenSSL verifies against the real clock
NUM_PIECES = 20  # of a stream, 50 ms apart
FAREWELL_S = 20.0  # asyncio's own for the end of a TLS connection is 30 s


def test_an_idle_client_does_not_delay_the_stop(tmp_path: Path) -> None:
    paths = Paths(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    tls.ensure_certificates(paths, (), at=NOW)
    context = tls.server_context(paths)
    app = Starlette(routes=[Route("/", lambda _request: PlainTextResponse("here"))])
    listener = listen_tcp("127.0.0.1", 0)
    port = listener.getsockname()[1]
    settings = uvicorn.Config(
        app,
        http="h11",
        log_config=None,
        timeout_graceful_shutdown=30,
        ssl_context_factory=lambda _config, _default: context,
    )
    server = BoundedServer(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    client = http.client.HTTPSConnection("127.0.0.1", port, context=client_context(paths))
    with closing(client):
        client.request("GET", "/")
        assert client.getresponse().read() == b"here"
        started_s = time.monotonic()
        server.should_exit = True
        thread.join(FAREWELL_S)
        assert not thread.is_alive(), f"still there after {time.monotonic() - started_s:.0f} s"


async def _stream(_request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(NUM_PIECES):
            yield b"piece."
            await asyncio.sleep(0.05)

    return StreamingResponse(pieces())


def stream_until(may_end: threading.Event) -> Callable[[Request], Awaitable[Response]]:
    """The same, but for its end: it comes when it may, however slow the machine is."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"piece."
        while not may_end.is_set():
            await asyncio.sleep(0.01)
        yield b"piece."

    async def stream(_request: Request) -> Response:
        return StreamingResponse(pieces())

    return stream


def get(stack: ExitStack, port: int, path: str) -> http.client.HTTPResponse:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    stack.enter_context(closing(client))
    client.request("GET", path)
    return stack.enter_context(closing(client.getresponse()))


@pytest.mark.parametrize("stays_open", [True, False])
def test_a_server_that_drains_answers_new_connections_until_the_last_stream_ended(
    stays_open: bool,
) -> None:
    """Where its app refuses what comes; the port of any other closes at once."""
    may_end = threading.Event()
    routes = [
        Route("/", lambda _request: PlainTextResponse("stopping", status_code=503)),
        Route("/stream", stream_until(may_end)),
    ]
    listener = listen_tcp("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = server_for(Starlette(routes=routes), drain_s=600, stays_open=stays_open)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    idle = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with ExitStack() as stack, closing(idle):
        idle.request("GET", "/")
        idle.getresponse().read()
        running = get(stack, port, "/stream")
        assert running.read(6) == b"piece."
        server.should_exit = True
        assert idle.sock.recv(1) == b""  # its pool asks anew, and is told
        for _ in range(2):
            if stays_open:
                refused = get(stack, port, "/")
                assert (refused.status, refused.getheader("connection")) == (503, "close")
            else:
                with pytest.raises(ConnectionRefusedError):
                    get(stack, port, "/")
        may_end.set()
        assert running.read() == b"piece."
        thread.join(PATIENCE_S)  # much less than `drain_s`
        assert not thread.is_alive()
        with pytest.raises(ConnectionRefusedError):
            get(stack, port, "/")


def test_nobody_who_comes_during_a_drain_prolongs_it() -> None:
    listener = listen_tcp("127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = Starlette(routes=[Route("/stream", _stream)])
    server = server_for(app, drain_s=600, stays_open=True)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    with ExitStack() as stack:
        get(stack, port, "/stream").read(6)
        server.should_exit = True
        until_s = time.monotonic() + PATIENCE_S
        with suppress(ConnectionError):
            while time.monotonic() < until_s:
                get(stack, port, "/stream")
                time.sleep(0.2)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


class Unloadable(ssl.SSLContext):
    """A context that takes no new certificate."""

    def load_cert_chain(self, *_: object, **__: object) -> None:
        raise ssl.SSLError(1, "[SSL] KEY_VALUES_MISMATCH")


async def test_a_renewal_that_fails_does_not_end_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path)
    await servers.renew_certificate(config, Unloadable(ssl.PROTOCOL_TLS_SERVER))
    assert "cannot be renewed" in caplog.text
    assert config.paths.server_cert.is_file()
