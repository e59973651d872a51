"""Are clients that hold connections without asking for anything sent away, and they alone?"""

import asyncio
import datetime as dt
import gc
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway import tls
from gateway.bounded_server import BoundedServer
from gateway.connections import BoundedProtocol
from gateway.paths import Paths
from gateway.probes import client_context
from gateway.sockets import listen_tcp
from gateway.streaming import StreamedBody
from gateway.tls_connection import READ_BYTES, TlsConnection
from tests.support.patience import PATIENCE_S

DEADLINE_S = 1.0
AMPLE_S = 2 * PATIENCE_S  # honest clients ask in less, on a machine that is busy too
READER_STALL_S = 2.0
KEEP_ALIVE_S = 5
MAX_CONNECTIONS = 4
PIECE = b"x" * 4096
LARGE_BYTES = 32 << 20  # more than the sockets of both sides hold
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class HastyProtocol(BoundedProtocol):
    header_deadline_s = AMPLE_S
    reader_stall_s = READER_STALL_S
    stalled: SimpleQueue[str] = SimpleQueue()  # the paths whose answers were not read
    paused: SimpleQueue[None] = SimpleQueue()  # more waits than the sockets hold
    max_connections = MAX_CONNECTIONS

    def pause_writing(self) -> None:
        super().pause_writing()
        self.paused.put(None)

    def _on_stall(self) -> None:
        super()._on_stall()
        assert self.scope is not None
        self.stalled.put(self.scope["path"])


class HastyServer(BoundedServer):
    protocol = HastyProtocol
    handshake_deadline_s = AMPLE_S
    loop_name = "asyncio"


async def _here(_request: Request) -> Response:
    return PlainTextResponse("here")


async def _slow(_request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            await asyncio.sleep(DEADLINE_S / 2)
            yield b"piece."

    return StreamingResponse(pieces())


class _Endless:
    """A stream without an end, and how each one ended."""

    def __init__(self) -> None:
        self.ends: SimpleQueue[str] = SimpleQueue()

    async def __call__(self, _request: Request) -> Response:
        reasons: list[str] = []

        async def pieces() -> AsyncGenerator[bytes, None]:
            while True:
                await asyncio.sleep(0)
                yield PIECE

        async def close() -> None:
            self.ends.put("".join(reasons) or "left")

        return StreamedBody(
            pieces(),
            on_close=close,
            media_type="text/plain",
            on_slow_reader=lambda: reasons.append("slow"),
        )


async def _large(_request: Request) -> Response:
    return Response(b"x" * LARGE_BYTES)


async def _swallow(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


ENDLESS = _Endless()
APP = Starlette(
    routes=[
        Route("/", _here, methods=["GET", "POST"]),
        Route("/slow", _slow),
        Route("/endless", ENDLESS.__call__, methods=["GET", "POST"]),
        Route("/swallow", _swallow, methods=["POST"]),
        Route("/large", _large),
    ]
)


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def loop_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers' own is uvloop; what is bounded must not depend on it."""
    monkeypatch.setattr(HastyServer, "loop_name", request.param)


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    listener = listen_tcp("127.0.0.1", 0)
    settings = uvicorn.Config(
        APP,
        loop=HastyServer.loop_name,
        http="h11",
        ws="none",
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
    server = HastyServer(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def tls_context(folder: Path) -> ssl.SSLContext:
    paths = Paths(state_dir=folder / "state", cache_dir=folder / "cache")
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - OpenSSL verifies against the real clock
    tls.ensure_certificates(paths, (), at=now)
    return tls.server_context(paths)


def tls_connect(port: int, folder: Path) -> ssl.SSLSocket:
    paths = Paths(state_dir=folder / "state", cache_dir=folder / "cache")
    return client_context(paths).wrap_socket(connect(port), server_hostname="localhost")


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def ask(client: socket.socket) -> bytes:
    """The answer to one request on this connection, which stays open."""
    client.sendall(GET)
    answer = b""
    while not answer.endswith(b"here"):
        piece = client.recv(4096)
        assert piece, f"cut after {answer!r}"
        answer += piece
    return answer


def seconds_until_cut(
    client: socket.socket, drip: bytes = b"", *, since_s: float | None = None
) -> float:
    """Sends a byte of `drip` every 50 ms until the server ends the connection."""
    started_s = time.monotonic() if since_s is None else since_s
    client.settimeout(0.05)
    rest = iter(drip)
    while time.monotonic() - started_s < PATIENCE_S:
        try:
            if not client.recv(4096):
                return time.monotonic() - started_s
        except TimeoutError:
            try:
                client.sendall(bytes([byte for _, byte in zip(range(1), rest, strict=False)]))
            except ConnectionError:
                return time.monotonic() - started_s
        except ConnectionError:
            return time.monotonic() - started_s
    raise AssertionError("still connected")


def set_deadlines(monkeypatch: pytest.MonkeyPatch, deadline_s: float) -> None:
    """Of connections that begin now, and of the next request on others."""
    monkeypatch.setattr(HastyProtocol, "header_deadline_s", deadline_s)
    monkeypatch.setattr(HastyServer, "handshake_deadline_s", 2 * deadline_s)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_headers_that_are_not_whole_in_time_end_the_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_deadlines(monkeypatch, DEADLINE_S)
    with serving() as port:
        since_s = time.monotonic()
        with closing(connect(port)) as slow:
            slow.sendall(sent)
            # uvloop takes the time at the start of a round, which may be a while ago
            assert seconds_until_cut(slow, since_s=since_s) >= DEADLINE_S / 2
        set_deadlines(monkeypatch, AMPLE_S)
        with closing(connect(port)) as other:
            ask(other)


def test_a_byte_now_and_then_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    set_deadlines(monkeypatch, DEADLINE_S)
    with serving() as port, closing(connect(port)) as slow:
        assert seconds_until_cut(slow, GET[:-2] + b"a: " + b"x" * 999) < PATIENCE_S / 3


def test_a_second_request_has_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as port, closing(connect(port)) as slow:
        ask(slow)
        set_deadlines(monkeypatch, DEADLINE_S)
        assert seconds_until_cut(slow, GET[:-2] + b"a: " + b"x" * 999) < PATIENCE_S / 3


def test_a_body_that_goes_on_after_the_answer_does_not_hold_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_deadlines(monkeypatch, DEADLINE_S)
    with serving() as port, closing(connect(port)) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\n")
        assert seconds_until_cut(slow, b"x" * 9999) < PATIENCE_S / 3


def test_an_answer_may_take_longer_than_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    set_deadlines(monkeypatch, DEADLINE_S)
    with serving() as port, closing(connect(port)) as client:
        client.sendall(GET.replace(b"/ ", b"/slow ", 1))
        answer = b""
        while answer.count(b"piece.") < 4:
            answer += client.recv(4096) or pytest.fail("cut")
        ask(client)  # and the connection serves on


def test_a_kept_connection_may_pause_between_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as port, closing(connect(port)) as client:
        ask(client)
        set_deadlines(monkeypatch, DEADLINE_S)
        ask(client)
        time.sleep(DEADLINE_S * 1.3)  # longer than headers may take, shorter than keep-alive
        since_s = time.monotonic()
        ask(client)
        assert seconds_until_cut(client, since_s=since_s) >= KEEP_ALIVE_S * 0.9


def test_a_flood_of_connections_locks_nobody_out() -> None:
    with serving() as port, ExitStack() as stack:
        busy = stack.enter_context(closing(connect(port)))
        busy.sendall(GET.replace(b"/ ", b"/slow ", 1))
        answer = busy.recv(4096)  # its head: the request is being answered
        flood = [stack.enter_context(closing(connect(port))) for _ in range(5 * MAX_CONNECTIONS)]
        ask(stack.enter_context(closing(connect(port))))
        assert seconds_until_cut(flood[0]) < PATIENCE_S
        while answer.count(b"piece.") < 4:  # a running answer is never the one to give way
            answer += busy.recv(4096) or pytest.fail("cut")


def test_a_tls_handshake_has_a_deadline_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_deadlines(monkeypatch, DEADLINE_S)
    with serving(tls_context(tmp_path)) as port:
        since_s = time.monotonic()
        with closing(connect(port)) as silent:
            cut_after_s = seconds_until_cut(silent, since_s=since_s)
        assert DEADLINE_S <= cut_after_s < PATIENCE_S / 3
        set_deadlines(monkeypatch, AMPLE_S)
        with closing(tls_connect(port, tmp_path)) as wrapped:
            ask(wrapped)
            set_deadlines(monkeypatch, DEADLINE_S)
            wrapped.sendall(GET[:20])
            assert seconds_until_cut(wrapped) < PATIENCE_S / 3


def test_a_flood_of_handshakes_gives_way_too(tmp_path: Path) -> None:
    with serving(tls_context(tmp_path)) as port, ExitStack() as stack:
        flood = [stack.enter_context(closing(connect(port))) for _ in range(2 * MAX_CONNECTIONS)]
        for silent in flood[:MAX_CONNECTIONS]:
            assert seconds_until_cut(silent) < PATIENCE_S
        ask(stack.enter_context(closing(tls_connect(port, tmp_path))))
        flood[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            flood[-1].recv(1)


def test_idle_tls_connections_share_one_buffer(tmp_path: Path) -> None:
    context = tls_context(tmp_path)
    with serving(context) as port, ExitStack() as stack:
        for _ in range(2):
            ask(stack.enter_context(closing(tls_connect(port, tmp_path))))
        gc.collect()
        held = [
            item
            for item in gc.get_objects()
            if type(item) is TlsConnection and item.context is context
        ]
        assert len(held) == 2
        assert len({id(item._buffer.obj) for item in held}) == 1
        assert len(held[0]._buffer) == READ_BYTES
        assert {item._incoming.pending + item._outgoing.pending for item in held} == {0}


def test_an_answer_that_nobody_reads_ends_with_its_connection() -> None:
    with serving() as port, closing(connect(port)) as silent:
        silent.sendall(GET.replace(b"/ ", b"/endless ", 1))
        assert ENDLESS.ends.get(timeout=PATIENCE_S) == "slow"
        with closing(connect(port)) as other:
            ask(other)


def test_over_tls_too_and_with_no_more_in_memory(tmp_path: Path) -> None:
    with serving(tls_context(tmp_path)) as port, closing(tls_connect(port, tmp_path)) as silent:
        silent.sendall(GET.replace(b"/ ", b"/endless ", 1))
        assert ENDLESS.ends.get(timeout=PATIENCE_S) == "slow"


def test_a_whole_answer_that_nobody_reads_holds_nothing_either() -> None:
    with serving() as port, closing(connect(port)) as silent:
        silent.sendall(GET.replace(b"/ ", b"/large ", 1))
        while HastyProtocol.stalled.get(timeout=PATIENCE_S) != "/large":
            pass
        # what the kernels hold is all there is
        assert 0 < len(read_to_end(silent)) < LARGE_BYTES


def test_a_client_that_reads_on_is_not_cut_and_one_that_leaves_was_not_slow() -> None:
    with serving() as port, closing(connect(port)) as steady:
        steady.sendall(GET.replace(b"/ ", b"/endless ", 1))
        until_s = time.monotonic() + 2 * READER_STALL_S
        while time.monotonic() < until_s:
            assert steady.recv(1 << 20)
            time.sleep(0.05)
        assert ENDLESS.ends.empty()
        steady.close()
        assert ENDLESS.ends.get(timeout=PATIENCE_S) == "left"


@pytest.mark.parametrize(("target", "is_tls"), [(b"/endless ", True), (b"/large ", False)])
def test_one_who_hangs_up_halfway_and_does_not_read_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: bytes, *, is_tls: bool
) -> None:
    monkeypatch.setattr(HastyProtocol, "paused", SimpleQueue())
    with ExitStack() as stack:
        port = stack.enter_context(serving(tls_context(tmp_path) if is_tls else None))
        silent = tls_connect(port, tmp_path) if is_tls else connect(port)
        stack.enter_context(closing(silent))
        silent.sendall(GET.replace(b"/ ", target, 1))
        HastyProtocol.paused.get(timeout=PATIENCE_S)
        time.sleep(0.2)  # the kernels may take some more
        socket.socket.shutdown(silent, socket.SHUT_WR)  # without a goodbye
        if target == b"/endless ":
            assert ENDLESS.ends.get(timeout=PATIENCE_S) == "slow"
            return
        while HastyProtocol.stalled.get(timeout=PATIENCE_S) != "/large":
            pass
        assert 0 < len(read_to_end(silent)) < LARGE_BYTES


def read_to_end(client: socket.socket) -> bytes:
    answer = bytearray()
    with suppress(ConnectionError):
        while piece := client.recv(1 << 20):
            answer += piece
    return bytes(answer)
