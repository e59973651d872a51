"""Does a protocol over our TLS get what was sent, and is nobody waited for beyond the deadline?"""

import asyncio
import datetime as dt
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateway import tls
from gateway.paths import Paths
from gateway.probes import client_context
from gateway.tls_connection import READ_BYTES, Handshakes, TlsConnection
from tests.support.patience import PATIENCE_S

FAREWELL_S = 0.5
LARGE = bytes(range(256)) * 4096  # 1 MiB


class Recorder(asyncio.Protocol):
    """Keeps what it hears; `greeting` is said and the connection closed, where there is one."""

    def __init__(self, greeting: bytes = b"", *, aborts: bool = False) -> None:
        self.greeting = greeting
        self.aborts = aborts  # at the first bytes
        self.heard = bytearray()
        self.transport: asyncio.Transport | None = None
        self.is_lost = asyncio.Event()
        self.news = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.news.set()
        if self.greeting:
            transport.write(self.greeting)
            transport.close()
            transport.write(b"never said")

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()
        if self.aborts and self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()
        self.news.set()

    async def until(self, num_bytes: int) -> asyncio.Transport:
        async with asyncio.timeout(PATIENCE_S):
            while self.transport is None or len(self.heard) < num_bytes:
                self.news.clear()
                await self.news.wait()
        return self.transport


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    paths = Paths(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - OpenSSL verifies against the real clock
    tls.ensure_certificates(paths, (), at=now)
    return tls.server_context(paths), client_context(paths)


@asynccontextmanager
async def serving(
    context: ssl.SSLContext, recorder: Recorder, *, handshake_s: float = PATIENCE_S
) -> AsyncGenerator[int]:
    buffer = bytearray(READ_BYTES)
    connections: list[TlsConnection] = []

    def accept() -> TlsConnection:
        connections.append(
            TlsConnection(
                recorder,
                context,
                buffer=buffer,
                handshakes=Handshakes(9),
                handshake_s=handshake_s,
                farewell_s=FAREWELL_S,
            )
        )
        return connections[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in connections:
            connection.transport.abort()
        await asyncio.sleep(0.05)


async def connect(
    port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )


async def test_both_ways_and_what_the_protocol_may_know(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    recorder = Recorder()
    async with serving(contexts[0], recorder) as port:
        reader, writer = await connect(port, contexts[1])
        writer.write(LARGE)
        transport = await recorder.until(len(LARGE))
        assert recorder.heard == LARGE
        transport.write(LARGE)
        assert await reader.readexactly(len(LARGE)) == LARGE
        assert transport.get_extra_info("sslcontext") is contexts[0]
        assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert transport.get_extra_info("peercert") is None
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            await recorder.is_lost.wait()
        await writer.wait_closed()


async def test_what_is_held_back_is_not_lost(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    recorder = Recorder()
    async with serving(contexts[0], recorder) as port:
        _, writer = await connect(port, contexts[1])
        transport = await recorder.until(0)
        transport.pause_reading()
        writer.write(LARGE)
        await asyncio.sleep(0.1)
        assert not recorder.heard
        transport.resume_reading()
        await recorder.until(len(LARGE))
        assert recorder.heard == LARGE
        writer.close()


async def test_after_an_abort_nothing_more_is_heard(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    recorder = Recorder(aborts=True)
    async with serving(contexts[0], recorder) as port:
        _, writer = await connect(port, contexts[1])
        writer.write(LARGE)
        async with asyncio.timeout(PATIENCE_S):
            await recorder.is_lost.wait()
        assert 0 < len(recorder.heard) <= 1 << 14  # one record
        writer.close()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"", b"\x16\x03\x01"])
async def test_who_speaks_no_tls_is_gone_in_time(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], sent: bytes
) -> None:
    recorder = Recorder()
    async with serving(contexts[0], recorder, handshake_s=FAREWELL_S) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                await reader.read()
        assert recorder.transport is None
        writer.close()


async def test_last_words_reach_a_client_that_still_talks(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    recorder = Recorder(b"too large")
    async with serving(contexts[0], recorder) as port:
        reader, writer = await connect(port, contexts[1])
        writer.write(LARGE)
        assert await reader.read() == b"too large"  # and a goodbye, else this raises
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            await recorder.is_lost.wait()
        assert not recorder.heard


async def test_a_goodbye_is_waited_for_no_longer_than_told(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    recorder = Recorder(b"bye")
    async with serving(contexts[0], recorder) as port:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = contexts[1].wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(READ_BYTES))
        started_s = time.monotonic()
        writer.write(outgoing.read())
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):  # it is cut
                incoming.write(await reader.read())
            await recorder.is_lost.wait()
        assert FAREWELL_S * 0.9 <= time.monotonic() - started_s < PATIENCE_S / 3
        writer.close()


async def test_who_takes_its_time_for_last_words_gets_them_all(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    words = LARGE * 32
    async with serving(contexts[0], Recorder(words)) as port:
        reader, writer = await connect(port, contexts[1])
        started_s, num_bytes = time.monotonic(), 0
        while piece := await reader.read(1 << 18):
            num_bytes += len(piece)
            await asyncio.sleep(0.01)
        assert num_bytes == len(words)
        assert time.monotonic() - started_s > 2 * FAREWELL_S
        writer.close()


async def test_bytes_that_are_no_record_end_it(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    recorder = Recorder()
    async with serving(contexts[0], recorder) as port:
        _, writer = await connect(port, contexts[1])
        await recorder.until(0)
        below: asyncio.Transport = writer.transport._ssl_protocol._transport  # type: ignore[attr-defined]
        below.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await recorder.is_lost.wait()
        assert not recorder.heard
        writer.close()
