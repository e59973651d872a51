"""A worker and a gateway as processes of their own, that a test may kill and start again."""

import contextlib
import datetime as dt
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from gateway.config import StarshadeConfig
from gateway.tls import ensure_certificates
from tests.gateway.support import make_config, make_key, wait_until
from tests.support.servers import free_port
from tests.support.tiny_model import gguf_bytes, tiny_metadata, tiny_tensors

CONTEXT_TOKENS: Final = 8192  # room for a stream that is still running when somebody dies
START_S: Final = 120.0
_REPO: Final = Path(__file__).resolve().parents[2]


@dataclass
class Processes:
    """Both processes, by the settings that they share."""

    config: StarshadeConfig
    environ: dict[str, str]
    key: str
    other_key: str  # of another tenant
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.config.gateway.port}"

    @property
    def model(self) -> str:
        return Path(self.config.worker.model).stem

    def start(self, role: str) -> None:
        """``worker`` or ``serve``."""
        log = self.config.paths.logs_dir / f"{role}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as out:
            self._running[role] = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli", role],
                cwd=_REPO,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def start_missing(self) -> None:
        """Whichever of the two does not run."""
        for role in ("worker", "serve"):
            if role not in self._running:
                self.start(role)

    def pid(self, role: str) -> int:
        return self._running[role].pid

    def kill(self, role: str) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        process = self._running.pop(role)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def log(self, role: str) -> str:
        return (self.config.paths.logs_dir / f"{role}.log").read_text()

    def wait_ready(self) -> None:
        """The gateway has verified its worker."""

        def is_ready() -> bool:
            for role, process in self._running.items():
                assert process.poll() is None, f"{role} ended\n{self.log(role)}"
            with contextlib.suppress(httpx.HTTPError), self.client() as client:
                return client.get("/readyz").status_code == 200
            return False

        wait_until(is_ready, timeout_s=START_S)

    @contextlib.contextmanager
    def client(self, *, key: str | None = None) -> Iterator[httpx.Client]:
        context = ssl.create_default_context(cafile=str(self.config.paths.ca_cert))
        headers = {"authorization": f"Bearer {key or self.key}"}
        with httpx.Client(
            base_url=self.base_url, headers=headers, verify=context, timeout=30, trust_env=False
        ) as client:
            yield client

    def body(self, text: str = "Say something.", **members: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        base = {"model": self.model, "messages": messages, "max_tokens": 8, "temperature": 0}
        return base | members

    def long_body(self) -> dict[str, Any]:
        """Runs until somebody ends it."""
        return self.body(stream=True, max_tokens=CONTEXT_TOKENS, ignore_eos=True)


@contextlib.contextmanager
def processes(state_dir: Path, *, is_started: bool = True, **flags: Any) -> Iterator[Processes]:
    """``gateway__port=1`` sets ``gateway.port``; ends with both processes dead."""
    model = state_dir / "tiny.gguf"
    state_dir.mkdir(mode=0o700, exist_ok=True)
    context = {"llama.context_length": CONTEXT_TOKENS}
    model.write_bytes(gguf_bytes(tiny_metadata() | context, tiny_tensors()))
    given: dict[str, Any] = {
        "worker__model": str(model),
        "worker__threads": 1,
        "engine__kv_cache_bytes": 4 << 20,
        "gateway__port": free_port(),
        "gateway__drain_s": 1,
        **flags,
    }
    config = make_config(state_dir, **given)
    for folder in (config.paths.run_dir, config.paths.tls_dir):
        folder.mkdir(mode=0o700, exist_ok=True)
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - tests are a process edge
    ensure_certificates(config.paths, config.gateway.hostnames, at=now)
    running = Processes(
        config=config,
        environ=_environ(state_dir, given),
        key=make_key(config, tenant="acme"),
        other_key=make_key(config, tenant="crowd"),
    )
    try:
        if is_started:
            running.start_missing()
            running.wait_ready()
        yield running
    finally:
        running.stop_all()


def _environ(state_dir: Path, flags: dict[str, Any]) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("STARSHADE_")}  # noqa: TID251
    settings = {
        "state_dir": state_dir,
        "policy": "development",
        "worker__tee": "fake",
        "telemetry__enabled": "false",
        **flags,
    }
    return own | {f"STARSHADE_{name.upper()}": str(value) for name, value in settings.items()}


def events_until_broken(response: httpx.Response) -> tuple[list[dict[str, Any]], bool]:
    """(the JSON of every event, whether `[DONE]` came); a cut connection ends it, too."""
    events, is_done, text = list[dict[str, Any]](), False, ""
    with contextlib.suppress(httpx.HTTPError):
        for piece in response.iter_text():
            text += piece
    for line in text.split("\n"):
        if line == "data: [DONE]":
            is_done = True
        elif line.startswith("data: "):
            with contextlib.suppress(ValueError):  # cut in the middle of an event
                events.append(json.loads(line.removeprefix("data: ")))
    return events, is_done


def wait_for_receipt(client: httpx.Client, receipt_id: str) -> dict[str, Any]:
    """The signed receipt, once it is written."""
    give_up = time.monotonic() + 10
    while (answer := client.get(f"/v1/receipts/{receipt_id}")).status_code != 200:
        assert time.monotonic() < give_up, answer.text
        time.sleep(0.05)
    value: dict[str, Any] = answer.json()
    return value
