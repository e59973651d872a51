"""Do other people's clients, unmodified, get their answers through every sealed door?

Each runs in an environment of its own (`make interop` makes it) against a real gateway over TLS
whose keys rotate under it, asks whole and streamed, and must not see one failure.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.app import GatewayApp
from gateway.tls import server_context
from gateway.wiring import build_gateway_app
from tests.gateway.support import (
    MODEL,
    HashEngine,
    edge_keys,
    make_worker_app,
    prepare,
    wait_until,
)
from tests.support.resources import interop_dir
from tests.support.servers import ServerThread

pytestmark = pytest.mark.interop

CLIENTS = Path(__file__).parent / "clients"
ROTATION_S = 2
ASKING_S = 7  # three rotations: what was Active at the start is erased before the end
TIMEOUT_S = 90


@dataclass(frozen=True)
class Served:
    base: str
    ca_file: Path
    api_key: str
    app: GatewayApp


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config, key = prepare(
        tmp_path_factory.mktemp("interop"),
        gateway__key_rotation_s=ROTATION_S,
        worker__key_rotation_s=ROTATION_S,
    )
    worker = ServerThread(
        make_worker_app(config, HashEngine(), InMemorySpanExporter()), uds=config.worker.socket
    )
    app = build_gateway_app(config, exporter=InMemorySpanExporter())
    gateway = ServerThread(app, context=server_context(config.paths))
    with worker, gateway:
        wait_until(lambda: app.services.directory.readiness() is None)
        yield Served(f"https://localhost:{gateway.port}", config.paths.ca_cert, key, app)


def report_of(served: Served, command: list[str]) -> dict[str, Any]:
    """Runs a client to its end; it must have asked through a whole life of a key."""
    before = {config.key_id for config in edge_keys(served.app).published}
    environ = {**os.environ, "NODE_EXTRA_CA_CERTS": str(served.ca_file)}  # noqa: TID251 - of a child
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not before & edge_keys(served.app).ring.states().keys()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def node(script: str, served: Served) -> list[str]:
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs Node.js")
    copied = shutil.copy(CLIENTS / script, interop_dir() / script)  # beside its node_modules
    return [found, str(copied), served.base, served.api_key, MODEL, str(ASKING_S)]


def python(script: str, served: Served, *arguments: str) -> list[str]:
    interpreter = str(interop_dir() / "venv" / "bin" / "python")
    settings = [served.base, str(served.ca_file), served.api_key, MODEL, str(ASKING_S)]
    return [interpreter, str(CLIENTS / script), *arguments, *settings]


def require_served(report: dict[str, Any]) -> None:
    assert len(report["texts"]) == 1, "whole and streamed answers of one request differ"
    assert report["texts"][0]
    assert report["num_requests"] >= 10
    assert report["refused"] == "model_not_found"


@pytest.mark.parametrize("transport", ["ehbp", "tng"])
def test_the_openai_sdk_over(served: Served, transport: str) -> None:
    require_served(report_of(served, python("openai_sdk.py", served, transport)))


def test_pyhpke(served: Served) -> None:
    require_served(report_of(served, python("pyhpke_ohttp.py", served)))


@pytest.mark.parametrize("script", ["ehbp.mjs", "ohttp.mjs"])
def test_the_npm_packages(served: Served, script: str) -> None:
    require_served(report_of(served, node(script, served)))
