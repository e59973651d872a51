"""A server that speaks the vendors' APIs, well or badly, and remembers what it was asked."""

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer; ``drip_s`` waits before each byte, ``cut`` promises more than it sends."""

    content: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    head_drip_s: float = 0.0
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request as it came."""

    method: str
    path: str
    params: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]


Route = Reply | Callable[[Call], Reply]


class FakeService:
    """Serves ``routes`` by path. A list is one reply a call, the last one for ever."""

    def __init__(
        self,
        routes: Mapping[str, Route | list[Route]] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.tls = tls
        self.scheme = "http" if tls is None else "https"
        self.routes = dict(routes or {})
        self.calls: list[Call] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def paths(self) -> list[str]:
        return [call.path for call in self.calls]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, call: Call) -> Reply:
        self.calls.append(call)
        route = self.routes.get(call.path, Reply(status=404))
        if isinstance(route, list):
            route = route.pop(0) if len(route) > 1 else route[0]
        return route if isinstance(route, Reply) else route(call)


def _handler(service: FakeService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # a body would wait 40 ms for its head's ACK

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            reply = service.answer(
                Call(
                    method=self.command,
                    path=parts.path,
                    params=dict(parse_qsl(parts.query)),
                    body=body,
                    headers={name.lower(): value for name, value in self.headers.items()},
                )
            )
            with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):  # it had enough
                self._send(reply)

        def _send(self, reply: Reply) -> None:
            length = len(reply.content) + (100 if reply.cut else 0)
            headers = {"content-length": str(length), "connection": "close"} | dict(reply.headers)
            head = f"HTTP/1.1 {reply.status} x\r\n" + "".join(
                f"{name}: {value}\r\n" for name, value in headers.items()
            )
            _write(self.wfile.write, (head + "\r\n").encode("latin-1"), reply.head_drip_s)
            _write(self.wfile.write, reply.content, reply.drip_s)
            self.close_connection = True

    return Handler


def _write(write: Callable[[bytes], object], data: bytes, drip_s: float) -> None:
    if not drip_s:
        write(data)
        return
    for index in range(len(data)):
        write(data[index : index + 1])
        time.sleep(drip_s)
