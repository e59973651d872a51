"""Does anything get through that was not verified, and does what broke come back?"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.probes import probe_worker
from tests.e2e.support import Installation, held_engine, installation
from tests.gateway.support import wait_until
from tests.support.patience import PATIENCE_S


def test_the_production_policy_never_serves_a_simulated_tee(
    tmp_path: Path, tiny_model: Path
) -> None:
    with (
        installation(tmp_path, tiny_model, wait=False, policy="production") as running,
        running.http() as client,
    ):
        wait_until(  # the worker loads its model first
            lambda: (
                client.get("/readyz").json().get("detail_code", "worker_not_ready")
                != "worker_not_ready"
            ),
            timeout_s=60,
        )
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["code"], ready.json()["detail_code"]) == (
            503,
            "upstream_verification_failed",
            "untrusted_root",
        )
        for stream in (False, True):
            answer = client.post("/v1/chat/completions", json=running.body(stream=stream))
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            error = answer.json()["error"]
            assert error["code"] == "upstream_verification_failed"
            assert "untrusted_root" in error["message"]
        assert client.get("/v1/models").status_code == 503
        (node,) = client.get("/v1/nodes").json()["data"]
        assert (node["state"], node["code"], node["not_after"]) == (
            "quarantined",
            "untrusted_root",
            None,
        )
        own = client.get("/v1/attestation", params={"nonce": "ab" * 32})
        assert own.status_code == 200  # a fake was asked for by name; its verifier will refuse it
        assert running.proxy.sealed_requests() == []
        assert '"error.type": "upstream_verification_failed"' in running.exported()
        assert '"starshade.attestation.code": "untrusted_root"' in running.exported()


def test_auto_finds_no_tee_and_says_so(tmp_path: Path, tiny_model: Path) -> None:
    with (
        installation(
            tmp_path, tiny_model, wait=False, policy="production", worker__tee="auto"
        ) as running,
        running.http() as client,
    ):
        wait_until(lambda: running.worker_get("/readyz").json()["status"] == "failed", timeout_s=60)
        assert running.worker_get("/readyz").json()["code"] == "tee_unavailable"
        evidence = running.worker_get("/attestation", nonce="ab" * 32)
        assert (evidence.status_code, evidence.json()["code"]) == (503, "tee_unavailable")
        own = client.get("/v1/attestation", params={"nonce": "ab" * 32})
        assert own.json()["error"]["code"] == "tee_unavailable"
        answer = client.post("/v1/chat/completions", json=running.body())
        assert answer.json()["error"]["code"] == "upstream_unavailable"
        assert client.get("/readyz").json()["code"] == "upstream_unavailable"


def test_the_simulated_tee_is_announced(
    tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), installation(tmp_path, tiny_model):
        pass
    loud = [r for r in caplog.records if "SIMULATED" in r.getMessage()]
    assert [r.args for r in loud] == [("gateway",), ("worker",)]


@pytest.fixture
def fresh(tmp_path: Path, tiny_model: Path) -> Iterator[Installation]:
    with installation(tmp_path, tiny_model) as running:
        yield running


def test_a_restarted_worker_is_attested_again_within_the_request(fresh: Installation) -> None:
    with fresh.http() as client:
        before = client.get("/v1/nodes").json()["data"][0]
        fresh.worker.stop()
        fresh.restart_worker()
        wait_until(lambda: fresh.worker_get("/readyz").status_code == 200)
        answer = client.post("/v1/chat/completions", json=fresh.body())
        assert answer.status_code == 200
        after = client.get("/v1/nodes").json()["data"][0]
    assert after["key_config_sha256"] != before["key_config_sha256"]
    assert after["verdict_id"] != before["verdict_id"]


def test_a_worker_that_is_away_is_unavailable_and_comes_back(fresh: Installation) -> None:
    with fresh.http() as client:
        fresh.worker.stop()
        for _ in range(2):
            answer = client.post("/v1/chat/completions", json=fresh.body())
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                503,
                "upstream_unavailable",
            )
            assert answer.headers["retry-after"] == "2"
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/v1/nodes").json()["data"][0]["state"] in {"verified", "refreshing"}
        fresh.restart_worker()
        fresh.wait_ready()
        assert client.post("/v1/chat/completions", json=fresh.body()).status_code == 200


def test_a_worker_killed_in_mid_stream_is_an_error_event(tmp_path: Path, tiny_model: Path) -> None:
    """A worker in a process of its own, killed with SIGKILL."""
    with installation(tmp_path, tiny_model, wait=False) as running:
        running.worker.stop()
        process = start_worker_process(running)
        try:
            wait_until(lambda: probe_worker(running.config.worker.socket).ready, timeout_s=60)
            running.reattest()
            body = running.body(stream=True, max_tokens=8000, ignore_eos=True)
            with (
                running.http() as client,
                client.stream("POST", "/v1/chat/completions", json=body) as response,
            ):
                lines = (line for line in response.iter_lines() if line)
                assert "role" in next(lines)
                process.kill()
                *_, last = lines
            code = json.loads(last.removeprefix("data: "))["error"]["code"]
            assert code == "upstream_truncated"
            process.wait(PATIENCE_S)
            running.restart_worker()
            running.wait_ready()
            with running.http() as client:
                assert client.post("/v1/chat/completions", json=running.body()).is_success
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def test_a_signal_gives_a_stream_its_last_word(tmp_path: Path, tiny_model: Path) -> None:
    """SIGTERM reaches the app while a response is open, not after it."""
    with installation(tmp_path, tiny_model, wait=False) as running:
        running.worker.stop()
        process = start_worker_process(running)
        try:
            wait_until(lambda: probe_worker(running.config.worker.socket).ready, timeout_s=60)
            running.reattest()
            body = running.body(stream=True, max_tokens=480, ignore_eos=True)
            with (
                running.http() as client,
                client.stream("POST", "/v1/chat/completions", json=body) as response,
            ):
                lines = (line for line in response.iter_lines() if line)
                next(lines)
                process.terminate()
                *_, last = lines
            # done within its time, or told so; never cut off
            assert last == "data: [DONE]" or "server_stopping" in last
            process.wait(PATIENCE_S)
            # uvicorn raises a captured signal again once it has stopped
            assert process.returncode in {0, -signal.SIGTERM}
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def start_worker_process(running: Installation) -> "subprocess.Popen[bytes]":
    config = running.config
    environment = {
        **os.environ,  # noqa: TID251 - tests are a process edge
        "STARSHADE_STATE_DIR": str(config.state_dir),
        "STARSHADE_POLICY": "development",
        "STARSHADE_WORKER__MODEL": config.worker.model,
        "STARSHADE_WORKER__TEE": "fake",
        "STARSHADE_WORKER__SOCKET": str(config.worker.socket),
        "STARSHADE_ENGINE__KV_CACHE_BYTES": str(config.engine.kv_cache_bytes),
        "STARSHADE_GATEWAY__DRAIN_S": "1",
        "STARSHADE_TELEMETRY__ENABLED": "false",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "worker"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_stopping_lets_a_short_stream_finish(fresh: Installation) -> None:
    body = fresh.body(stream=True, max_tokens=60, ignore_eos=True)
    with fresh.http() as client, held_engine(fresh, 0.01):  # or it may be over before
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            fresh.gateway.drain()
            wait_until(lambda: fresh.gateway.app.services.drain.has_begun)
            *_, last = lines
        assert last == "data: [DONE]"
        late = client.post("/v1/chat/completions", json=fresh.body())
        assert (late.status_code, late.json()["error"]["code"]) == (503, "server_stopping")
        assert client.get("/readyz").json()["code"] == "server_stopping"


@pytest.mark.parametrize("side", ["gateway", "worker"])
def test_stopping_tells_a_long_stream(tmp_path: Path, tiny_model: Path, side: str) -> None:
    with (
        installation(tmp_path, tiny_model, gateway__drain_s=0) as running,
        held_engine(running, 0.02),  # or the stream is over before anybody stops
    ):
        body = running.body(stream=True, max_tokens=4000, ignore_eos=True)
        with (
            running.http() as client,
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            (running.gateway if side == "gateway" else running.worker).drain()
            *_, last = lines
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "server_stopping"


def test_the_deadline_ends_a_request(tmp_path: Path, tiny_model: Path) -> None:
    with (
        installation(tmp_path, tiny_model, gateway__request_deadline_s=1) as running,
        held_engine(running, 0.05),
    ):
        with running.http() as client:
            whole = client.post(
                "/v1/chat/completions", json=running.body(max_tokens=8000, ignore_eos=True)
            )
            streamed = client.post(
                "/v1/chat/completions",
                json=running.body(max_tokens=8000, ignore_eos=True, stream=True),
            )
        assert (whole.status_code, whole.json()["error"]["code"]) == (408, "request_timeout")
        told = whole.json()["error"]["message"]
        assert "gateway.request_deadline_s" in told
        assert "max_tokens" in told
        last = streamed.text.strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "request_timeout"
        wait_until(lambda: running.worker_get("/stats").json()["open"] == 0)


def test_too_many_requests_are_turned_away_at_once(tmp_path: Path, tiny_model: Path) -> None:
    with (
        installation(tmp_path, tiny_model, gateway__max_concurrent_streams=1) as running,
        held_engine(running, 0.01),
    ):
        body = running.body(stream=True, max_tokens=8000, ignore_eos=True)
        with (
            running.http() as client,
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            lines = response.iter_lines()  # closing the iterator would close the response
            next(lines)
            with running.http() as second:
                refused = second.post("/v1/chat/completions", json=running.body())
                assert (refused.status_code, refused.json()["error"]["code"]) == (
                    503,
                    "overloaded",
                )
                assert second.get("/readyz").status_code == 200


def test_a_half_sent_body_is_not_a_request(fresh: Installation) -> None:
    def half() -> Iterator[bytes]:
        yield b'{"model": '
        raise ConnectionError("the client went away")

    with fresh.http() as client, pytest.raises((ConnectionError, httpx.HTTPError)):
        client.post(
            "/v1/chat/completions", content=half(), headers={"content-type": "application/json"}
        )
    with fresh.http() as client:
        assert client.post("/v1/chat/completions", json=fresh.body()).status_code == 200
