"""Is a worker refused that the deny list names, and is a new policy followed without a restart?"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from attestation.errors import PolicyError
from attestation.policy import load_policy
from gateway.app import GatewayApp
from gateway.audit_cli import audit
from gateway.reloading import reload_on_hangup
from gateway.trust import MAX_DENIED, Trust, TrustSource, load_denied
from tests.gateway.support import Stack, error_of, running_stack, wait_until
from tests.support.patience import PATIENCE_S


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_a_deny_list_is_read_line_by_line(tmp_path: Path) -> None:
    path = written(tmp_path / "deny", "# all of these\nworker-1\n\n  ab12 # a chip\nab12\n")
    assert load_denied(path) == {"worker-1", "ab12"}
    assert load_denied(None) == frozenset()


@pytest.mark.parametrize(
    "text", ["two words\n", "x" * 257, "\n".join(map(str, range(MAX_DENIED + 1)))]
)
def test_a_deny_list_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyError):
        load_denied(written(tmp_path / "deny", text))


def test_a_deny_list_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot read"):
        load_denied(tmp_path / "deny")
    (tmp_path / "deny").write_bytes(b"\xff\n")
    with pytest.raises(PolicyError, match="UTF-8"):
        load_denied(tmp_path / "deny")


def test_only_what_differs_is_a_change() -> None:
    states = [
        Trust(policy=load_policy("development")),
        Trust(policy=load_policy("development")),
        Trust(policy=load_policy("development"), denied=frozenset({"x"})),
        Trust(policy=load_policy("production"), denied=frozenset({"x"})),
    ]
    loading = iter(states)
    source = TrustSource(lambda: next(loading))
    assert [source.reload() for _ in range(3)] == [False, True, True]
    assert source.current is states[3]


async def test_each_hangup_reloads_once() -> None:
    reloads = 0

    async def reload() -> None:
        nonlocal reloads
        reloads += 1

    with reload_on_hangup(reload):
        for expected in (1, 2):
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                while reloads < expected:
                    await asyncio.sleep(0.001)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    written(tmp_path / "deny", "# nobody\n")
    with running_stack(tmp_path, gateway__deny_file=str(tmp_path / "deny")) as running:
        yield running


def reload(stack: Stack) -> None:
    app: GatewayApp = stack.gateway.app
    assert stack.gateway.loop is not None
    asyncio.run_coroutine_threadsafe(app._reload(), stack.gateway.loop).result(timeout=PATIENCE_S)


def verdict(stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = stack.client.get("/v1/nodes/worker-0/verdict").json()
    return found


def attested_weights(stack: Stack) -> tuple[str, ...]:
    """What the gateway's own keyset says that it serves."""
    app: GatewayApp = stack.gateway.app
    assert app.services.attester is not None
    return app.services.attester.facts().weights_sha256


def kinds(stack: Stack) -> list[str]:
    arguments = ["show", "--json", "--state-dir", str(stack.config.state_dir)]
    output = CliRunner().invoke(audit, arguments).output
    return [json.loads(line)["kind"] for line in output.splitlines()]


@pytest.mark.parametrize("entry", ["worker-0", "weights", "measurement"])
def test_a_worker_is_denied_by_anything_that_its_verdict_shows(stack: Stack, entry: str) -> None:
    shown = verdict(stack)
    assert (shown["code"], shown["lease"]["usable"], shown["result"]["accepted"]) == (
        None,
        True,
        True,
    )
    assert attested_weights(stack) == ("ab" * 32,)
    entries = {
        "worker-0": "worker-0",
        "weights": "ab" * 32,
        "measurement": shown["result"]["claims"]["mrtd"],
    }
    written(stack.config.state_dir / "deny", f"{entries[entry]}\n")
    reload(stack)
    wait_until(lambda: verdict(stack)["lease"]["state"] == "quarantined")
    denied = verdict(stack)
    assert (denied["code"], denied["lease"]["epoch"], denied["lease"]["usable"]) == (
        "denied",
        1,
        False,
    )
    assert attested_weights(stack) == ()
    refused = stack.chat()
    assert (refused.status_code, error_of(refused)["code"]) == (503, "upstream_verification_failed")
    assert "denied" in error_of(refused)["message"]
    written(stack.config.state_dir / "deny", "")
    reload(stack)
    wait_until(lambda: stack.chat().status_code == 200)
    wait_until(lambda: kinds(stack).count("trust_changed") == 2)
    assert "worker_quarantined" in kinds(stack)


def test_a_list_that_cannot_be_used_changes_nothing(stack: Stack) -> None:
    (stack.config.state_dir / "deny").unlink()
    reload(stack)
    assert verdict(stack)["lease"]["epoch"] == 0
    assert stack.chat().status_code == 200
    wait_until(lambda: "trust_refused" in kinds(stack))


def test_a_verdict_document(stack: Stack) -> None:
    shown = verdict(stack)
    (node,) = stack.client.get("/v1/nodes").json()["data"]
    assert shown["node"] == "worker-0"
    assert shown["lease"]["verdict_id"] == node["verdict_id"] == shown["result"]["verdict_id"]
    assert shown["lease"]["key_config_sha256"] == node["key_config_sha256"]
    assert {check["outcome"] for check in shown["result"]["checks"]} <= {
        "pass",
        "warn",
        "not_applicable",
    }
    assert shown["result"]["not_covered"]
    unknown = stack.client.get("/v1/nodes/worker-9/verdict")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "node_not_found")


def test_a_verdict_that_is_not_there_yet(tmp_path: Path) -> None:
    written(tmp_path / "deny", "")
    with running_stack(tmp_path, wait=False) as stack:
        app: GatewayApp = stack.gateway.app
        name = app.services.directory.nodes[0].id
        shown = stack.client.get(f"/v1/nodes/{name}/verdict").json()
        assert shown["lease"]["state"] in {"unverified", "verified"}
