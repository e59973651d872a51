"""How is a server started, asked and ended for one round, and what did it take?

Start-up is from the start of the process to the first answered request; memory is the greatest sum
of PSS over the process's tree.
"""

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.bench.http_connection import HttpTargetError, open_server
from gateway.bench.http_target import HttpTarget
from runtime.bench.load import Job
from runtime.bench.machine import process_tree, pss_bytes
from runtime.tokenizer import Tokenizer
from tests.bench.subjects import REPOSITORY, PeerFailed
from tests.support.servers import free_port

START_TIMEOUT_S = 300.0
_POLL_S = 0.05
_STOP_S = 30.0


@dataclass(slots=True, kw_only=True)
class Running:
    """A server that has answered once."""

    target: HttpTarget
    pid: int
    start_s: float
    peak_pss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """How to start one, and how it is asked."""

    name: str
    command: Sequence[str | Path]
    url: str
    as_chat: bool
    model: str
    environment: Mapping[str, str]
    state: Path | None = None  # where it keeps its certificate and key


def llama_server(program: Path, model: Path, *, threads: int, streams: int) -> ServerKind:
    """A slot for each stream and 1,280 tokens of context in each."""
    port = free_port()
    command = [program, "-m", model, "-t", threads, "-tb", threads, "-np", streams]
    command += ["-c", 1280 * streams, "-fa", "on", "--host", "127.0.0.1", "--port", port]
    return ServerKind(
        name="llama-server",
        command=[str(part) for part in command],
        url=f"http://127.0.0.1:{port}/v1",
        as_chat=False,
        model="m",
        environment={},
    )


@contextlib.contextmanager
def product(model: Path, *, threads: int) -> Iterator[ServerKind]:
    """`starshade up`: worker, gateway and observatory, HTTPS, attested, sealed and traced."""
    with tempfile.TemporaryDirectory(prefix="starshade-") as folder:
        ports = free_port(), free_port()
        state = Path(folder)
        command = [sys.executable, "-m", "gateway.cli", "up", "--model", str(model)]
        command += ["--port", str(ports[0]), "--dashboard-port", str(ports[1])]
        command += ["--state-dir", str(state)]
        yield ServerKind(
            name="starshade, whole product",
            command=command,
            url=f"https://127.0.0.1:{ports[0]}/v1",
            as_chat=True,
            model=model.stem,
            environment={"STARSHADE_WORKER__THREADS": str(threads)},
            state=state,
        )


@contextlib.contextmanager
def running(kind: ServerKind, tokenizer: Tokenizer, log: Path) -> Iterator[Running]:
    """Raises: PeerFailed when it does not answer in time."""
    started_s = time.monotonic()
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(part) for part in kind.command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=REPOSITORY,
            env={**os.environ, **kind.environment},  # noqa: TID251 - this is a process edge
            start_new_session=True,
        )
    ended = threading.Event()
    watcher: threading.Thread | None = None
    try:
        target = _wait(kind, tokenizer, process, started_s + START_TIMEOUT_S)
        server = Running(target=target, pid=process.pid, start_s=time.monotonic() - started_s)
        watcher = threading.Thread(target=_watch, args=(server, ended), daemon=True)
        watcher.start()
        yield server
    finally:
        ended.set()
        if watcher is not None:
            watcher.join()
        _stop(process)


def _wait(
    kind: ServerKind, tokenizer: Tokenizer, process: subprocess.Popen[bytes], deadline_s: float
) -> HttpTarget:
    first = Job(prompt_token_ids=tuple(tokenizer.encode("Hello", special=False)), max_tokens=1)
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise PeerFailed(f"{kind.name} ended with {process.returncode}")
        with contextlib.suppress(HttpTargetError, OSError, ssl.SSLError):
            target = HttpTarget(
                open_server(kind.url, ca=_ca(kind), api_key=_key(kind)),
                model=kind.model,
                decode=tokenizer.decode,
                as_chat=kind.as_chat,
                name=kind.name,
            )
            if target.run([first], concurrency=1).records[0].error is None:
                return target
        time.sleep(_POLL_S)
    raise PeerFailed(f"{kind.name} did not answer")


def _ca(kind: ServerKind) -> Path | None:
    return None if kind.state is None else kind.state / "ca.pem"


def _key(kind: ServerKind) -> str | None:
    return None if kind.state is None else (kind.state / "dev-api-key").read_text().strip()


def _watch(server: Running, ended: threading.Event) -> None:
    while not ended.wait(1.0):
        seen = pss_bytes(process_tree(server.pid)) or 0
        server.peak_pss_bytes = max(server.peak_pss_bytes, seen)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to its whole session, SIGKILL when that does not help."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
            return
