"""What does somebody between gateway and worker see, and what can they change?

A proxy records every byte of the hop. The positive control is the same proxy on a plaintext hop:
the recorder must find the canary there, or its silence elsewhere proves nothing.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from attestation.channel import ServerKey, serialize_key_configs
from tests.e2e.support import Installation, RecordingProxy, held_engine, installation
from tests.gateway.support import events_of, wait_until
from tests.support.patience import PATIENCE_S
from tests.support.servers import unix_client

CANARY = "canary-9d2e71c4"
SEALED_TYPE = "message/ohttp-chunked-req"


def completion_of(running: Installation, text: str) -> str:
    with running.http() as client:
        body = running.body(text, stream=True, max_tokens=24, ignore_eos=True, temperature=0)
        events = events_of(client.post("/v1/chat/completions", json=body))
    return "".join(
        choice["delta"].get("content", "") for event in events for choice in event["choices"]
    )


def test_neither_prompt_nor_completion_crosses_the_hop_in_clear(running: Installation) -> None:
    completion = completion_of(running, CANARY)
    recorded = running.proxy.recorded()
    assert b"POST /ohttp" in recorded
    for secret in (CANARY, completion[:12], "chat.completion", running.key, "max_tokens"):
        assert len(secret) >= 8
        assert secret.encode() not in recorded
        assert json.dumps(secret)[1:-1].encode() not in recorded


def test_the_recorder_would_see_them(tmp_path: Path) -> None:
    """The control: an unsealed hop through the same proxy, with the same kind of server."""
    near, far = tmp_path / "near.sock", tmp_path / "far.sock"
    with plaintext_worker(far), RecordingProxy(near, far) as proxy:
        with unix_client(near) as client:
            answer = client.post("/v1/chat/completions", json={"content": CANARY}).text
        assert CANARY in answer
        assert proxy.recorded().count(CANARY.encode()) == 2  # there and back


@contextlib.contextmanager
def plaintext_worker(path: Path) -> Iterator[None]:
    """Echoes one request's body in clear: what a hop without sealing would carry."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            request = b""
            while CANARY.encode() not in request:
                request += connection.recv(65536)
            body = request.partition(b"\r\n\r\n")[2]
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    yield
    server.join(PATIENCE_S)
    listener.close()


def test_a_recorded_request_is_refused_the_second_time(running: Installation) -> None:
    completion_of(running, "once")
    recorded = running.proxy.sealed_requests()[-1]
    with running.worker_client() as worker:
        again = worker.post("/ohttp", content=recorded, headers={"content-type": SEALED_TYPE})
    assert (again.status_code, again.json()["code"]) == (409, "replay_detected")


@pytest.mark.parametrize("cut", ["flip", "truncate", "empty", "key_id"])
def test_a_damaged_request_gets_one_text(running: Installation, cut: str) -> None:
    completion_of(running, "damage")
    sealed = running.proxy.sealed_requests()[-1]
    damaged = {
        "flip": sealed[:-1] + bytes([sealed[-1] ^ 1]),
        "truncate": sealed[:-1],
        "empty": b"",
        "key_id": bytes([sealed[0] ^ 1]) + sealed[1:],
    }[cut]
    with running.worker_client() as worker:
        answer = worker.post("/ohttp", content=damaged, headers={"content-type": SEALED_TYPE})
    expected = "key_config_error" if cut == "key_id" else "decrypt_failed"
    assert (answer.status_code, answer.json()["code"]) == (400, expected)
    if cut != "key_id":
        assert answer.json()["detail"] == "The encapsulated message could not be opened."


def test_the_worker_takes_nothing_in_clear(running: Installation) -> None:
    with running.worker_client() as worker:
        plain = worker.post("/v1/chat/completions", json=running.body())
        assert plain.status_code == 404
        typed = worker.post("/ohttp", json=running.body())
        assert (typed.status_code, typed.json()["code"]) == (415, "unsupported_media_type")


def test_a_swapped_key_is_not_sealed_to(tmp_path: Path, tiny_model: Path) -> None:
    mine = ServerKey.generate(key_id=1).config
    replaced = {b"/keys": ("application/ohttp-keys", serialize_key_configs([mine]))}
    with installation(tmp_path, tiny_model, wait=False, replaced=replaced) as running:
        with running.http() as client:
            wait_until(lambda: _code(client) == "upstream_verification_failed", timeout_s=60)
            assert client.get("/readyz").json()["detail_code"] == "key_config_error"
            refused = client.post("/v1/chat/completions", json=running.body())
        assert refused.status_code == 503
        assert "key_config_error" in refused.json()["error"]["message"]
        assert running.proxy.sealed_requests() == []


def test_evidence_of_another_nonce_ends_a_lease(tmp_path: Path, tiny_model: Path) -> None:
    """A proxy that answers with an older bundle of the same genuine worker."""
    with installation(tmp_path, tiny_model) as running:
        old = running.worker_get("/attestation", nonce="ab" * 32).content
        running.proxy.replaced = {b"/attestation": ("application/json", old)}
        running.reattest()
        with running.http() as client:
            refused = client.post("/v1/chat/completions", json=running.body())
        assert refused.status_code == 503
        assert "nonce_mismatch" in refused.json()["error"]["message"]
        running.proxy.replaced = {}
        running.reattest()
        running.wait_ready()


def test_a_stream_cut_in_flight_is_an_error_and_never_a_short_answer(
    tmp_path: Path, tiny_model: Path
) -> None:
    with installation(tmp_path, tiny_model) as running:
        body = running.body(stream=True, max_tokens=8000, ignore_eos=True)
        with running.http() as client, held_engine(running, 0.01):
            with client.stream("POST", "/v1/chat/completions", json=body) as response:
                lines = (line for line in response.iter_lines() if line)
                assert "role" in next(lines)
                running.proxy.cut()
                *_, last = lines
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "upstream_truncated"
            wait_until(lambda: running.worker_get("/stats").json()["open"] == 0)
            running.wait_ready()
            assert client.post("/v1/chat/completions", json=running.body()).status_code == 200


def _code(client: httpx.Client) -> str:
    return str(client.get("/readyz").json().get("code"))
