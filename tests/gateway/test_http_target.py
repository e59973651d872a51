"""Does the bench's HTTP client see what a server sends, when it sends it, and its failures?"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.bench.http_connection import Connection, HttpTargetError, open_server
from gateway.bench.http_target import HttpTarget, first_model
from runtime.bench.load import Job
from tests.gateway.support import wait_until
from tests.support.patience import PATIENCE_S
from tests.support.tls import self_signed, server_context

PAUSE_S = 0.02


class Handler(BaseHTTPRequestHandler):
    """Sends ``max_tokens`` chunks, one each PAUSE_S; what it was asked is in the server's list.

    The last one waits until ``num_awaited`` requests have come.
    """

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked: list[Any] = self.server.asked  # type: ignore[attr-defined]
        asked.append((self.path, self.headers.get("Authorization"), value, self.client_address))
        if value["model"] == "refused":
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(value["max_tokens"]):
            time.sleep(PAUSE_S)
            if number == value["max_tokens"] - 1:
                wait_until(lambda: len(asked) >= self.server.num_awaited)  # type: ignore[attr-defined]
            self.event({"choices": [{"delta": {"content": f"{number} "}, "text": f"{number} "}]})
        if value["model"] == "breaks":
            self.event({"error": {"code": "internal_error"}})
        usage = {"prompt_tokens": 3, "completion_tokens": 2 * value["max_tokens"]}
        self.event({"choices": [], "usage": usage | {"prompt_tokens_details": None}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, value: Any) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.asked, server.num_awaited = [], 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def target(server: ThreadingHTTPServer, *, model: str = "tiny", as_chat: bool = True) -> HttpTarget:
    where = open_server(f"http://127.0.0.1:{server.server_port}/v1", ca=None, api_key="sk-x")
    return HttpTarget(where, model=model, decode=lambda ids: f"<{len(ids)}>", as_chat=as_chat)


def asked(server: ThreadingHTTPServer) -> list[Any]:
    found: list[Any] = server.asked  # type: ignore[attr-defined]
    return found


def test_streams_share_the_jobs_and_keep_their_connections(server: ThreadingHTTPServer) -> None:
    jobs = [Job(prompt_token_ids=(0,) * n, max_tokens=3) for n in range(1, 7)]
    run = target(server).run(jobs, concurrency=2)
    run.require_complete()
    assert [record.output_tokens for record in run.records] == [6] * 6
    assert [record.prompt_tokens for record in run.records] == [3] * 6
    assert all(len(record.chunk_s) == 3 for record in run.records)
    assert run.wall_s >= 3 * 3 * PAUSE_S
    assert len({peer for *_, peer in asked(server)}) == 2
    assert {(path, key) for path, key, *_ in asked(server)} == {
        ("/v1/chat/completions", "Bearer sk-x")
    }
    # Two streams start at once: which of them is heard first is not ours to say.
    contents = sorted(value["messages"][0]["content"] for _, _, value, _ in asked(server))
    assert contents == [f"<{n}>" for n in range(1, 7)]
    _, _, value, _ = asked(server)[0]
    assert (value["ignore_eos"], value["temperature"], value["stream"]) == (True, 0, True)


def test_plain_completions(server: ThreadingHTTPServer) -> None:
    run = target(server, as_chat=False).run(
        [Job(prompt_token_ids=(1, 2), max_tokens=2)], concurrency=4
    )
    run.require_complete()
    path, _, value, _ = asked(server)[0]
    assert (path, value["prompt"]) == ("/v1/completions", "<2>")


def test_a_late_job_waits_for_tokens_of_others(server: ThreadingHTTPServer) -> None:
    server.num_awaited = 2  # type: ignore[attr-defined]
    jobs = [
        Job(prompt_token_ids=(1,), max_tokens=8),
        Job(prompt_token_ids=(1,), max_tokens=1, after_tokens=4),
    ]
    run = target(server).run(jobs, concurrency=2)
    first, late = run.records
    assert sum(at <= late.sent_s for at in first.chunk_s) >= 4
    assert late.sent_s < first.chunk_s[-1]


def test_failures_are_told(server: ThreadingHTTPServer) -> None:
    job = Job(prompt_token_ids=(1,), max_tokens=1)
    with pytest.raises(HttpTargetError, match="status 503"):
        target(server, model="refused").run([job], concurrency=1)
    run = target(server, model="breaks").run([job], concurrency=1)
    with pytest.raises(Exception, match="sent an error"):
        run.require_complete()


def test_the_model_is_the_first_listed(server: ThreadingHTTPServer) -> None:
    where = open_server(f"http://127.0.0.1:{server.server_port}/v1/", ca=None, api_key=None)
    assert first_model(where) == "tiny"


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(HttpTargetError, match="URL"):
        open_server("ftp://127.0.0.1/", ca=None, api_key=None)
    with pytest.raises(HttpTargetError, match="no connection"):
        first_model(open_server("http://127.0.0.1:9/", ca=None, api_key=None))


def test_a_connection_knows_that_the_server_closed_it() -> None:
    async def hung_up() -> tuple[bool, bool]:
        accepted: list[asyncio.StreamWriter] = []

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            where = open_server(f"http://127.0.0.1:{port}", ca=None, api_key=None)
            connection = await where.connect()
            while not accepted:
                await asyncio.sleep(0)
            before = connection.is_open
            accepted[0].close()
            await accepted[0].wait_closed()
            async with asyncio.timeout(PATIENCE_S):
                while connection.is_open:
                    await asyncio.sleep(0)
            connection.close()
            return before, connection.is_open

    assert asyncio.run(hung_up()) == (True, False)


def test_a_server_that_reads_no_more_is_not_waited_for(tmp_path: Path) -> None:
    """Over TLS its goodbye would be awaited for 30 s."""
    certificate, is_over = self_signed(tmp_path), threading.Event()
    listener = server_context(certificate).wrap_socket(
        socket.create_server(("127.0.0.1", 0)), server_side=True
    )

    def answer_once() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            body = b'{"data": [{"id": "tiny"}]}'
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            is_over.wait(60)

    thread = threading.Thread(target=answer_once)
    with listener:
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        started_s = time.monotonic()
        try:
            assert first_model(open_server(url, ca=certificate[0], api_key=None)) == "tiny"
            assert time.monotonic() - started_s < 20
        finally:
            is_over.set()
            thread.join()


def test_what_was_opened_is_closed_when_the_next_cannot_be(server: ThreadingHTTPServer) -> None:
    opened: list[Connection] = []

    class OnlyOne(HttpTarget):
        async def connect(self) -> Connection:
            if opened:
                raise HttpTargetError("no more")
            opened.append(await super().connect())
            return opened[0]

    where = open_server(f"http://127.0.0.1:{server.server_port}/v1", ca=None, api_key=None)
    only_one = OnlyOne(where, model="tiny", decode=str, as_chat=True)
    with pytest.raises(HttpTargetError, match="no more"):
        only_one.run([Job(prompt_token_ids=(1,), max_tokens=1)] * 2, concurrency=2)
    assert not opened[0].is_open


def test_a_server_that_hangs_up_is_no_traceback() -> None:
    async def asked() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            where = open_server(f"http://127.0.0.1:{port}", ca=None, api_key=None)
            connection = await where.connect()
            try:
                async for _ in connection.request("GET", "/models"):
                    pass
            finally:
                connection.close()

    with pytest.raises(HttpTargetError, match="broken answer"):
        asyncio.run(asked())
