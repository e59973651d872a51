"""A TLS server whose token times are known: the oracle of every client clock.

Runs in a process of its own, so that the load generator's event loop cannot delay it.
"""

import json
import multiprocessing
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.patience import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What each chat answer looks like."""

    ttft_s: float = 0.05
    gap_s: float = 0.02
    num_tokens: int = 16
    freeze_at_s: float | None = None  # after the first request ...
    freeze_s: float = 0.0  # ... nothing moves for this long
    status: int = 200
    is_truncated: bool = False


@contextmanager
def schedule_server(certificate: Path, key: Path, schedule: Schedule) -> Iterator[int]:
    """The port of a running server; each request is answered on its schedule."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(str(certificate), str(key), schedule, theirs), daemon=True
    )
    process.start()
    try:
        assert ours.poll(PATIENCE_S), "the schedule server did not start"
        yield int(ours.recv())
    finally:
        process.terminate()
        process.join(PATIENCE_S)
        ours.close()


def _serve(certificate: str, key: str, schedule: Schedule, pipe: Connection) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    pipe.send(listener.getsockname()[1])
    freeze = _Freeze(schedule)
    while True:
        raw, _ = listener.accept()
        threading.Thread(
            target=_connection, args=(context, raw, schedule, freeze), daemon=True
        ).start()


class _Freeze:
    """One scripted stall of the whole server."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._first_s: float | None = None

    def wait(self) -> None:
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        if self._schedule.freeze_at_s is None:
            return
        start_s = self._first_s + self._schedule.freeze_at_s
        end_s = start_s + self._schedule.freeze_s
        if start_s <= now_s < end_s:
            time.sleep(end_s - now_s)


def _connection(
    context: ssl.SSLContext, raw: socket.socket, schedule: Schedule, freeze: _Freeze
) -> None:
    try:
        with context.wrap_socket(raw, server_side=True) as sock, sock.makefile("rb") as stream:
            while _read_request(stream):
                _answer(sock, schedule, freeze)
                if schedule.is_truncated:
                    return
    except OSError:
        return


def _read_request(stream: object) -> bool:
    length = 0
    while (line := stream.readline()) not in (b"\r\n", b""):  # type: ignore[attr-defined]
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    if line == b"":
        return False
    return len(stream.read(length)) == length  # type: ignore[attr-defined]


def _answer(sock: ssl.SSLSocket, schedule: Schedule, freeze: _Freeze) -> None:
    start_s = time.monotonic()
    freeze.wait()
    if schedule.status != 200:
        body = json.dumps({"error": {"code": "overloaded", "message": "no"}}).encode()
        head = f"HTTP/1.1 {schedule.status} X\r\ncontent-length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        return
    sock.sendall(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    _event(sock, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    for k in range(schedule.num_tokens):
        due_s = start_s + schedule.ttft_s + k * schedule.gap_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        freeze.wait()
        _event(sock, {"choices": [{"index": 0, "delta": {"content": "é "}}]})
        if schedule.is_truncated and k == 2:
            return
    _event(sock, {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    usage = {
        "prompt_tokens": 40,
        "completion_tokens": schedule.num_tokens,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    _event(sock, {"choices": [], "usage": usage})
    _chunk(sock, b"data: [DONE]\n\n")
    sock.sendall(b"0\r\n\r\n")


def _event(sock: ssl.SSLSocket, event: object) -> None:
    _chunk(sock, b"data: " + json.dumps(event).encode() + b"\n\n")


def _chunk(sock: ssl.SSLSocket, data: bytes) -> None:
    sock.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")
