"""When is a worker's connection used again, and when is it cut?  A peer that follows a script."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from gateway import worker_connection
from gateway.http1 import MAX_HEAD_BYTES
from gateway.worker_connection import MAX_HELD_BYTES, WorkerGone
from gateway.worker_http import WorkerHttp, WorkerResponse
from tests.support.patience import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Peer:
    """Says `answer` to each request."""

    def __init__(self) -> None:
        self.answer = OK
        self.hangs_up = False
        self.is_early = False
        self.heads: list[bytes] = []
        self.bodies = b""
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.tasks.append(asyncio.current_task())
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                if b"chunked" in self.heads[-1] and not self.is_early:
                    self.bodies += await reader.readuntil(b"0\r\n\r\n")
                writer.write(self.answer)
                if self.hangs_up:
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    @property
    def num_connections(self) -> int:
        return len(self.writers)


@asynccontextmanager
async def asked(folder: Path) -> AsyncGenerator[tuple[Peer, WorkerHttp]]:
    peer, path = Peer(), folder / "peer.sock"
    server = await asyncio.start_unix_server(peer.serve, path)
    http = WorkerHttp(f"unix:{path}")
    try:
        yield peer, http
    finally:
        http.close()
        server.close()
        await asyncio.sleep(0)
        await settled(lambda: all(task is not None and task.done() for task in peer.tasks))


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def whole(http: WorkerHttp, response: WorkerResponse) -> bytes:
    try:
        return b"".join([piece async for piece in response.pieces()])
    finally:
        http.release(response)


async def test_a_connection_is_kept(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        for _ in range(3):
            assert await whole(http, await http.get("/keys?a=b")) == b"ok"
        assert peer.num_connections == 1
        assert peer.heads[0].startswith(b"GET /keys?a=b HTTP/1.1\r\nHost: worker\r\n")


async def test_a_body_as_it_comes(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        for data in (b"abc", b"", b"0123456789"):
            yield data

    async with asked(tmp_path) as (peer, http):
        assert await whole(http, await http.post("/ohttp", body(), media_type="a/b")) == b"ok"
        assert peer.bodies == b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [OK + b"HTTP/1.1 200 OK\r\n\r\n", OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)],
    ids=["more than was asked", "close"],
)
async def test_one_that_may_not_be_used_again(tmp_path: Path, answer: bytes) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer = answer
        for _ in range(2):
            assert await whole(http, await http.get("/")) == b"ok"
        assert peer.num_connections == 2


async def test_one_that_answers_early_is_not_used_again(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"abc"
        (connection,) = http._open
        await settled(lambda: connection._reader is not None and connection._reader.is_complete)

    async with asked(tmp_path) as (peer, http):
        peer.is_early = True
        assert await whole(http, await http.post("/", body(), media_type="a/b")) == b"ok"
        assert not http._open


async def test_what_is_no_content_does_not_fill_the_buffer(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        hint = b"HTTP/1.1 103 x\r\na: %b\r\n\r\n" % (b"a" * (MAX_HEAD_BYTES - 64))
        peer.answer = hint * 6
        asking = asyncio.ensure_future(http.get("/"))
        await settled(lambda: bool(peer.heads))
        await asyncio.sleep(0.05)  # they are read
        peer.writers[0].write(OK)
        async with asyncio.timeout(PATIENCE_S):
            assert await whole(http, await asking) == b"ok"


async def test_one_that_speaks_unasked_is_cut(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        assert await whole(http, await http.get("/")) == b"ok"
        peer.writers[0].write(OK)
        await settled(lambda: not http._idle)
        assert await whole(http, await http.get("/")) == b"ok"
        assert peer.num_connections == 2


async def test_one_that_is_left_in_the_middle_is_cut(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer = STREAM + b"2\r\nab\r\n"
        response = await http.get("/")
        assert await response.read() == b"ab"
        http.release(response)
        await settled(lambda: peer.writers[0].is_closing())
        with pytest.raises(WorkerGone):
            await response.read()


async def test_a_cancelled_question_cuts_its_connection(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer = b"HTTP/1.1 200 OK\r\n"
        asking = asyncio.ensure_future(http.get("/"))
        await settled(lambda: bool(peer.heads))
        asking.cancel()
        await settled(lambda: peer.writers[0].is_closing())
        assert not http._open


async def test_an_idle_one_is_closed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_connection, "_KEEP_ALIVE_S", 0.05)
    async with asked(tmp_path) as (peer, http):
        assert await whole(http, await http.get("/")) == b"ok"
        await settled(lambda: peer.writers[0].is_closing())
        assert (http._idle, http._open) == ([], set())


async def test_one_that_breaks_off(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer, peer.hangs_up = STREAM + b"2\r\nab\r\n", True
        response = await http.get("/")
        assert await response.read() == b"ab"
        with pytest.raises(WorkerGone):
            await response.read()
        http.release(response)
        peer.answer = b""
        with pytest.raises(WorkerGone):
            await http.get("/")


async def test_what_is_no_http(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer = b"SSH-2.0-x\r\n\r\n"
        with pytest.raises(WorkerGone):
            await http.get("/")


async def test_closing_ends_what_runs_and_drops_what_came(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer = STREAM + b"2\r\nab\r\n0\r\n\r\n"
        response = await http.get("/")
        http.close()
        with pytest.raises(WorkerGone):
            await response.read()
        with pytest.raises(WorkerGone):
            await http.get("/")


async def test_closing_while_it_connects(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        asking = asyncio.ensure_future(http.get("/"))
        while not http._open:
            await asyncio.sleep(0)
        http.close()
        with pytest.raises(WorkerGone):
            await asking
        assert not http._open
        assert not peer.heads


async def test_a_worker_waits_for_who_does_not_read(tmp_path: Path) -> None:
    async with asked(tmp_path) as (peer, http):
        peer.answer = STREAM + b"400000\r\n" + bytes(1 << 22) + b"\r\n0\r\n\r\n"
        response = await http.get("/")
        await asyncio.sleep(0.1)
        (connection,) = http._open
        assert connection._num_held < MAX_HELD_BYTES + (1 << 18) + len(STREAM) + 8
        assert await whole(http, response) == bytes(1 << 22)


async def test_a_worker_that_does_not_take_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_connection, "_WRITE_S", 0.05)

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        is_closed.set()

    is_over, is_closed = asyncio.Event(), asyncio.Event()
    path = tmp_path / "deaf.sock"
    async with await asyncio.start_unix_server(deaf, path, limit=1024):
        http = WorkerHttp(f"unix:{path}")
        with pytest.raises(WorkerGone, match="does not take"):
            await http.post("/ohttp", bytes(1 << 22), media_type="a/b")
        assert not http._open
        is_over.set()
        await is_closed.wait()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_nobody_there(tmp_path: Path, run: Callable[[Coroutine[None, None, None]], None]) -> None:
    async def ask() -> None:
        for address in (f"unix:{tmp_path}/nobody", "http://127.0.0.1:9"):
            http = WorkerHttp(address)
            with pytest.raises(WorkerGone):
                await http.get("/")
            assert not http._open

    run(ask())


async def test_pieces_go_to_who_takes_them_while_the_reader_waits(tmp_path: Path) -> None:
    taken: list[bytes] = []
    is_ready = True
    async with asked(tmp_path) as (peer, http):
        peer.answer = STREAM + b"1\r\na\r\n"
        response = await http.post("/", b"x", media_type="text/plain")
        assert await response.read() == b"a"
        response.divert(taken.append, is_ready=lambda: is_ready)
        reading = asyncio.ensure_future(response.read())
        await asyncio.sleep(0)
        peer.writers[-1].write(b"1\r\nb\r\n1\r\nc\r\n")
        await settled(lambda: taken == [b"b", b"c"])
        assert not reading.done()
        is_ready = False
        peer.writers[-1].write(b"1\r\nd\r\n")
        assert await reading == b"d"
        is_ready = True
        peer.writers[-1].write(b"1\r\ne\r\n")  # nobody waits: it is kept
        await asyncio.sleep(0.05)
        assert await response.read() == b"e"
        reading = asyncio.ensure_future(response.read())
        await asyncio.sleep(0)
        peer.writers[-1].write(b"1\r\nf\r\n0\r\n\r\n")
        assert await reading is None
        http.release(response)
        assert taken == [b"b", b"c", b"f"]
        peer.answer = OK
        assert await whole(http, await http.get("/")) == b"ok"
        assert peer.num_connections == 1
        assert taken == [b"b", b"c", b"f"]  # of the next answer nothing


async def test_who_takes_may_fail_and_the_reader_is_told(tmp_path: Path) -> None:
    def fail(_piece: bytes) -> None:
        raise RuntimeError("no")

    async with asked(tmp_path) as (peer, http):
        peer.answer = STREAM
        response = await http.post("/", b"x", media_type="text/plain")
        response.divert(fail, is_ready=lambda: True)
        reading = asyncio.ensure_future(response.read())
        await asyncio.sleep(0)
        peer.writers[-1].write(b"1\r\nb\r\n0\r\n\r\n")
        with pytest.raises(RuntimeError):
            await reading
        http.release(response)
        peer.answer = OK
        assert await whole(http, await http.get("/")) == b"ok"
        assert peer.num_connections == 2
