"""Which installation do the end-to-end tests talk to?  TLS 1.3, sealed hop, real engine.

Gateway and worker are the production apps from the production wiring; only the model is small.
Between them can stand a proxy that records every byte, or changes an answer.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import httpx
import openai
import uvicorn
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from attestation import collect
from attestation.evidence import QuotingTee
from gateway.config import StarshadeConfig
from gateway.tls import server_context
from gateway.wiring import build_gateway_app
from gateway.worker.wiring import build_worker_app
from tests.gateway.support import flush_spans, prepare, wait_until
from tests.support.servers import ServerThread, unix_client

Answer = tuple[str, bytes]  # media type and body
Replacement = Answer | Callable[[str], Answer]  # the same for every request, or by its target


class RecordingProxy:
    """Passes bytes between two Unix sockets and keeps them all."""

    def __init__(self, listen: Path, target: Path) -> None:
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(listen))
        self._listener.listen(64)
        self._lock = threading.Lock()
        self.to_worker: list[bytearray] = []
        self.to_gateway: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self.replaced: dict[bytes, Replacement] = {}
        """Request path -> what the gateway gets instead of the worker's answer."""
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def recorded(self) -> bytes:
        with self._lock:
            return b"\0".join(bytes(b) for b in (*self.to_worker, *self.to_gateway))

    def sealed_requests(self) -> list[bytes]:
        """The bodies of recorded POST /ohttp requests, each of which must have a length."""
        bodies = []
        with self._lock:
            for stream in self.to_worker:
                rest = bytes(stream)
                while rest:
                    head, _, rest = rest.partition(b"\r\n\r\n")
                    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                    length = int(fields.get(b"content-length", b"0"))
                    body, rest = rest[:length], rest[length:]
                    if head.startswith(b"POST /ohttp"):
                        bodies.append(body)
        return bodies

    def cut(self) -> None:
        """Breaks every connection that is open now."""
        with self._lock:
            sockets = tuple(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                far.connect(str(self._target))
            except OSError:
                near.close()
                far.close()
                continue
            up, down = bytearray(), bytearray()
            with self._lock:
                self.to_worker.append(up)
                self.to_gateway.append(down)
                self._sockets += (near, far)
            pumps = [
                threading.Thread(target=self._pump, args=(near, far, up), daemon=True),
                threading.Thread(target=self._pump, args=(far, near, down), daemon=True),
            ]
            for pump in pumps:
                pump.start()
            threading.Thread(target=_close_after, args=(pumps, near, far), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    record += data
                replacement = self._replacement(data)
                if replacement is None:
                    sink.sendall(data)
                else:
                    for piece in replacement:
                        source.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RD)

    def _replacement(self, data: bytes) -> tuple[bytes, bytes] | None:
        for path, replacement in tuple(self.replaced.items()):
            if data.startswith(b"GET " + path):
                target = data.split(b" ", 2)[1].decode()
                answer = replacement(target) if callable(replacement) else replacement
                media_type, body = answer
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n"
                return f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body
        return None


def _close_after(pumps: list[threading.Thread], *sockets: socket.socket) -> None:
    for pump in pumps:
        pump.join()
    for each in sockets:
        each.close()


@dataclass
class Installation:
    """A running gateway behind TLS, its worker, and the proxy between them."""

    config: StarshadeConfig
    model: str
    proxy: RecordingProxy
    gateway: ServerThread
    worker: ServerThread
    key: str
    gateway_spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    worker_spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    worker_tee: Callable[[], QuotingTee] = collect.open_tee

    @property
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.gateway.port}"

    def tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.config.paths.ca_cert))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    @contextlib.contextmanager
    def http(self, *, key: str | None = None) -> Iterator[httpx.Client]:
        headers = {"authorization": f"Bearer {key or self.key}"}
        with httpx.Client(
            base_url=self.base_url, headers=headers, verify=self.tls_context(), timeout=60
        ) as client:
            yield client

    @contextlib.contextmanager
    def openai(self, *, key: str | None = None) -> Iterator[openai.OpenAI]:
        """The unmodified client; only its trust store is ours."""
        with (
            openai.DefaultHttpxClient(verify=self.tls_context(), timeout=60) as http,
            openai.OpenAI(
                base_url=f"{self.base_url}/v1",
                api_key=key or self.key,
                http_client=http,
                max_retries=0,
            ) as client,
        ):
            yield client

    def body(self, text: str = "Say something.", **members: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        base = {"model": self.model, "messages": messages, "max_tokens": 8, "temperature": 0}
        return base | members

    def worker_get(self, path: str, **params: str) -> httpx.Response:
        with self.worker_client() as client:
            return client.get(path, params=params)

    @contextlib.contextmanager
    def worker_client(self) -> Iterator[httpx.Client]:
        """Straight to the worker's socket, past gateway and proxy."""
        with unix_client(self.config.worker.socket) as client:
            yield client

    def restart_worker(self) -> None:
        """A new process in all but name: new key, empty cache."""
        self.worker = start_worker(self.config, self.worker_spans, self.worker_tee)

    def reattest(self) -> None:
        """What the gateway does when 80 % of a lease have passed."""
        directory = self.gateway.app.services.directory
        self.gateway.run(directory.reattest(directory.nodes[0]))

    def wait_ready(self) -> None:
        with self.http() as client:
            wait_until(lambda: client.get("/readyz").status_code == 200, timeout_s=60)

    def settle(self) -> None:
        """Waits until what both processes do for requests that were answered is done."""
        self.gateway.settle()
        self.worker.settle()

    def exported(self) -> str:
        """Everything both processes have put into spans, as text, of every request that was
        answered.
        """
        self.settle()
        flush_spans(self.gateway.app)
        flush_spans(self.worker.app)
        spans = (
            *self.gateway_spans.get_finished_spans(),
            *self.worker_spans.get_finished_spans(),
        )
        return "\n".join(span.to_json() for span in spans)


@contextlib.contextmanager
def installation(
    state_dir: Path,
    model: Path,
    *,
    wait: bool = True,
    exports: bool = False,
    replaced: Mapping[bytes, Replacement] = MappingProxyType({}),
    worker_tee: Callable[[], QuotingTee] = collect.open_tee,
    server: type[uvicorn.Server] = uvicorn.Server,
    **flags: object,
) -> Iterator[Installation]:
    """Runs everything in `state_dir`; `gateway__port=1` sets `gateway.port`.

    `exports` sends spans to the configured endpoint instead of keeping them here. `replaced` is
    what the proxy answers from the first request on, `worker_tee` what the worker attests with
    where `worker.tee` is `auto`, `server` what the gateway runs in.
    """
    run_dir = state_dir / "run"
    near, far = run_dir / "worker-0.sock", run_dir / "behind.sock"
    config, key = prepare(
        state_dir,
        **{
            "worker__model": str(model),
            "worker__socket": str(far),
            "gateway__workers": (f"unix:{near}",),
            "engine__kv_cache_bytes": 4 << 20,
            **flags,
        },
    )
    gateway_spans, worker_spans = InMemorySpanExporter(), InMemorySpanExporter()
    gateway = ServerThread(
        build_gateway_app(config, exporter=None if exports else gateway_spans),
        context=server_context(config.paths),
        server=server,
    )
    with RecordingProxy(near, far) as proxy:
        proxy.replaced = dict(replaced)
        running = Installation(
            config=config,
            model=model.stem,
            proxy=proxy,
            gateway=gateway,
            worker=start_worker(config, None if exports else worker_spans, worker_tee),
            key=key,
            gateway_spans=gateway_spans,
            worker_spans=worker_spans,
            worker_tee=worker_tee,
        )
        try:
            with gateway:
                if wait:
                    running.wait_ready()
                yield running
        finally:
            running.worker.stop_if_running()


def start_worker(
    config: StarshadeConfig,
    spans: InMemorySpanExporter | None,
    tee: Callable[[], QuotingTee] = collect.open_tee,
) -> ServerThread:
    app = build_worker_app(config, exporter=spans, open_guest=tee)
    return ServerThread(app, uds=config.worker.socket).start()


@contextlib.contextmanager
def held_engine(running: Installation, step_s: float) -> Iterator[list[None]]:
    """Slows every engine step down while open; the list grows by one with each."""
    steps: list[None] = []
    engine = running.worker.app.state.ready.bridge._engine
    advance = engine.advance

    def slow_advance() -> object:
        time.sleep(step_s)
        steps.append(None)
        return advance()

    engine.advance = slow_advance
    try:
        yield steps
    finally:
        engine.advance = advance
