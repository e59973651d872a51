"""Gateway and worker in processes of their own, and two ways to ask them for the same stream."""

import contextlib
import multiprocessing
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import httpx

from attestation.channel import KeyConfig, bhttp, parse_key_configs
from attestation.channel.bhttp import http_date
from gateway.bench.http_connection import Connection, Server, open_server
from gateway.bench.stub_engine import MODEL, stub_loader
from gateway.config import StarshadeConfig, load_config
from gateway.sealed import WorkerClient, open_exchange
from gateway.servers import run_app, serve_gateway
from gateway.sockets import free_port, listen_unix
from gateway.worker_http import UNIX_SCHEME
from runtime.bench.report import NotMeasurable

CHAT_PATH: Final = "/v1/chat/completions"
READY_S: Final = 60.0
MAX_KEYS_BYTES: Final = 1 << 16
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def bench_config(folder: Path, *, port: int) -> StarshadeConfig:
    """Development policy, simulated TEE, no limits that a benchmark would run into."""
    flags: dict[str, object] = {
        "state_dir": str(folder),
        "cache_dir": str(folder / "cache"),
        "policy": "development",
        "worker.tee": "fake",
        "worker.model": f"/{MODEL}.gguf",
        "gateway.port": port,
        "gateway.max_concurrent_streams": 4096,
        "telemetry.enabled": False,
    }
    return load_config(flags=flags, environ={})


def serve_stub_worker(folder: Path, port: int, itl_s: float) -> None:
    """The worker's process."""
    from gateway.worker.wiring import build_worker_app

    config = bench_config(folder, port=port)
    app = build_worker_app(config, load_engine=stub_loader(itl_s=itl_s))
    run_app(app, listen_unix(config.worker.socket), drain_s=1)


def serve_bench_gateway(folder: Path, port: int) -> None:
    """The gateway's process."""
    serve_gateway(bench_config(folder, port=port))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """Both processes, ready."""

    config: StarshadeConfig
    gateway: BaseProcess
    worker: BaseProcess
    server: Server

    def cpu_s(self) -> float:
        """What both have used since they began."""
        return _cpu_s(self.gateway) + _cpu_s(self.worker)


@contextlib.contextmanager
def running_hop(folder: Path, *, itl_s: float) -> Iterator[Hop]:
    """Raises: NotMeasurable when they do not come up."""
    from gateway.dev_key import ensure_dev_key

    port = free_port()
    config = bench_config(folder, port=port)
    config.paths.run_dir.mkdir(parents=True, mode=0o700)
    ensure_dev_key(config, now_ns=time.time_ns())
    spawn = multiprocessing.get_context("spawn")
    worker = spawn.Process(target=serve_stub_worker, args=(folder, port, itl_s), daemon=True)
    gateway = spawn.Process(target=serve_bench_gateway, args=(folder, port), daemon=True)
    worker.start()
    gateway.start()
    try:
        server = _await_ready(config, gateway, worker)
        yield Hop(config=config, gateway=gateway, worker=worker, server=server)
    finally:
        for process in (gateway, worker):
            process.terminate()
            process.join(10)


class GatewayAsker:
    """Over TLS, on kept connections, as a client does."""

    def __init__(self, hop: Hop, body: bytes) -> None:
        self._server = hop.server
        self._body = body
        self._idle: list[Connection] = []

    async def ask(self) -> AsyncIterator[bytes]:
        connection = await self._connection()
        try:
            async for part in connection.request("POST", "/chat/completions", self._body):
                yield part
        except BaseException:  # what is left of the answer would be taken for the next one
            connection.close()
            raise
        self._idle.append(connection)

    async def _connection(self) -> Connection:
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
            connection.close()  # the server did, because it was idle
        return await self._server.connect()

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()


class WorkerAsker:
    """Sealed to the worker's key, over its socket, as the gateway does."""

    def __init__(self, hop: Hop, body: bytes) -> None:
        self._client = WorkerClient(f"{UNIX_SCHEME}{hop.config.worker.socket}")
        self._key: KeyConfig  # has to be taken before the first `ask`
        self._body = body

    async def take_key(self) -> None:
        """The worker's next key, which opens for 600 s or more: as long as any turn takes."""
        keys = await self._client.get("/keys", max_bytes=MAX_KEYS_BYTES)
        self._key = parse_key_configs(keys)[-1]

    async def ask(self) -> AsyncIterator[bytes]:
        now = datetime.now(UTC)  # noqa: TID251 - the process edge
        request = bhttp.Request(
            method="POST",
            authority="worker",
            path=CHAT_PATH,
            fields=(("content-type", "application/json"), ("date", http_date(now))),
            content=self._body,
        )
        exchange = await open_exchange(self._client, self._key, request, rng=os.urandom)
        try:
            async for piece in exchange.content():
                yield piece
        finally:
            await exchange.aclose()

    async def close(self) -> None:
        await self._client.retire()


def _await_ready(config: StarshadeConfig, *processes: BaseProcess) -> Server:
    url = f"https://127.0.0.1:{config.gateway.port}"
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and all(process.is_alive() for process in processes):
        with contextlib.suppress(httpx.HTTPError, OSError):
            context = ssl.create_default_context(cafile=config.paths.ca_cert)
            if httpx.get(f"{url}/readyz", verify=context).status_code == 200:
                key = config.paths.dev_api_key.read_text("ascii").strip()
                return open_server(f"{url}/v1", ca=config.paths.ca_cert, api_key=key)
        time.sleep(0.1)
    raise NotMeasurable("gateway and worker do not come up")


def _cpu_s(process: BaseProcess) -> float:
    """User and system time of all its threads.  [proc_pid_stat(5)]"""
    fields = Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
