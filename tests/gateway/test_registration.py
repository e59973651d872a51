"""May operators add and remove workers of a running gateway, and nobody else?"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway import config_rules
from gateway.audit_cli import audit
from gateway.auth import Scope
from gateway.db import ApiKeyStore, open_engine
from gateway.registration import named
from tests.gateway.support import (
    HashEngine,
    Stack,
    make_config,
    make_worker_app,
    running_stack,
    wait_until,
)
from tests.support.servers import ServerThread

PATH = "/admin/workers"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path) as running:
        yield running


@pytest.fixture
def admin(stack: Stack) -> dict[str, str]:
    engine = open_engine(stack.config.database_url)
    key = ApiKeyStore(engine).create(label="a", tenant="ops", now_ns=1, scopes=[Scope.ADMIN])
    engine.dispose()
    return {"authorization": f"Bearer {key}"}


@contextlib.contextmanager
def second_worker(stack: Stack) -> Iterator[str]:
    path = stack.config.paths.run_dir / "second.sock"
    config = make_config(
        stack.config.state_dir, worker__socket=str(path), worker__id="worker-second"
    )
    with ServerThread(make_worker_app(config, HashEngine(), InMemorySpanExporter()), uds=path):
        yield f"unix:{path}"


def states(stack: Stack) -> dict[str, str]:
    entries: list[dict[str, Any]] = stack.client.get("/v1/nodes").json()["data"]
    return {entry["id"]: entry["state"] for entry in entries}


def ask(stack: Stack, method: str, address: str, headers: dict[str, str]) -> httpx.Response:
    return stack.client.request(method, PATH, params={"address": address}, headers=headers)


def test_a_registered_worker_serves_once_it_has_attested(
    stack: Stack, admin: dict[str, str]
) -> None:
    with second_worker(stack) as address:
        added = ask(stack, "POST", address, admin)
        assert (added.status_code, added.json()["id"]) == (200, "second")
        wait_until(lambda: states(stack).get("worker-second") == "verified")
        assert ask(stack, "POST", address, admin).json()["id"] == "worker-second"  # as before
        stack.worker.stop()
        receipt_id = stack.chat().headers["starshade-receipt"]
        receipt = stack.client.get(f"/v1/receipts/{receipt_id}").json()["receipt"]
        assert receipt["worker"] == "worker-second"
        assert ask(stack, "DELETE", address, admin).json() == {"object": "node", "deleted": True}
        assert set(states(stack)) == {"worker-0"}
        assert stack.chat().status_code == 503
        assert ask(stack, "POST", address, admin).status_code == 200
        wait_until(lambda: stack.chat().status_code == 200)
    arguments = ["show", "--json", "--state-dir", str(stack.config.state_dir)]
    events = map(json.loads, CliRunner().invoke(audit, arguments).output.splitlines())
    kinds = [event["kind"] for event in events]
    assert (kinds.count("worker_registered"), kinds.count("worker_removed")) == (2, 1)


def test_the_configured_worker_can_be_removed_too(stack: Stack, admin: dict[str, str]) -> None:
    assert ask(stack, "DELETE", f"unix:{stack.config.worker.socket}", admin).status_code == 200
    assert states(stack) == {}
    assert stack.client.get("/readyz").status_code == 503
    assert stack.chat().json()["error"]["code"] == "upstream_unavailable"


def test_only_operators_may(stack: Stack) -> None:
    for method in ("POST", "DELETE"):
        refused = ask(stack, method, "unix:/x", {})
        assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
        stranger = ask(stack, method, "unix:/x", {"authorization": "Bearer x"})
        assert stranger.status_code == 401
    assert set(states(stack)) == {"worker-0"}


def test_workers_of_equal_socket_names_are_told_apart() -> None:
    addresses = ("unix:/a/w.sock", "unix:/b/w.sock", "http://127.0.0.1:9000", "unix:/a/w.sock")
    assert named(addresses) == {
        "unix:/a/w.sock": "w",
        "unix:/b/w.sock": "w-1",
        "http://127.0.0.1:9000": "127.0.0.1-9000",
    }


@pytest.mark.parametrize(
    "address", ['unix:/a/W"0 \n.sock', "http://[::1]:9000", "unix:/...", "unix:/" + "w" * 99]
)
def test_a_name_may_stand_in_a_path_and_in_a_label(address: str) -> None:
    names = named([address, address.replace("/", "//")]).values()
    assert len(set(names)) == len(names)
    assert all(config_rules.identifier(name) is None for name in names)


@pytest.mark.parametrize(
    "address",
    [
        "ftp://x",
        "unix:relative",
        "unix:/",
        "http://a:b@c:1",
        "https://127.0.0.1:9000",
        "http://127.0.0.1",
        "http://127.0.0.1:9000/",
        "http://127.0.0.1:9000/a?b",
        'http://a"b:9000',
        "",
    ],
)
def test_an_address_that_is_none(stack: Stack, admin: dict[str, str], address: str) -> None:
    assert ask(stack, "POST", address, admin).status_code == 400
    gone = ask(stack, "DELETE", address, admin)
    assert gone.status_code == (404 if address else 400)
