"""What does a client get for each kind of bad request?  Over a real socket; the worker lives on."""

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.auth import KEY_PREFIX
from tests.gateway.support import (
    CONTEXT_TOKENS,
    MODEL,
    Stack,
    chat_body,
    error_of,
    events_of,
    running_stack,
    wait_until,
)
from tests.support.patience import PATIENCE_S
from tests.support.servers import unix_client

NONCE = "ab" * 32


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("edge"), gateway__max_body_bytes=4096) as stack:
        yield stack


@pytest.fixture(autouse=True)
def _still_serving(stack: Stack) -> Iterator[None]:
    """Whatever a test sent, the next request is answered, and nothing is left running."""
    yield
    assert stack.chat().status_code == 200
    wait_until(lambda: stack.worker_stats()["open"] == 0)


def refused(response: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)
    assert set(error) - {"receipt"} == {"message", "type", "param", "code"}
    assert error.get("receipt") == response.headers.get("starshade-receipt")


def test_whole_answer(stack: Stack) -> None:
    response = stack.chat(ignore_eos=True)
    answer = response.json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["usage"]["prompt_tokens"] == len("uhello")
    assert answer["id"] == f"chatcmpl-{response.headers['x-request-id']}"


def test_streamed_answer_equals_the_whole_one(stack: Stack) -> None:
    whole = stack.chat(ignore_eos=True).json()
    events = events_of(
        stack.chat(ignore_eos=True, stream=True, stream_options={"include_usage": True})
    )
    first, *content, finish, usage = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    text = "".join(event["choices"][0]["delta"]["content"] for event in content)
    assert text == whole["choices"][0]["message"]["content"]
    assert finish["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "length"}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 8
    assert len({event["id"] for event in events}) == 1


def test_usage_is_not_streamed_unasked(stack: Stack) -> None:
    assert not any("usage" in event for event in events_of(stack.chat(stream=True)))


def test_a_stop_string_ends_the_answer(stack: Stack) -> None:
    text = stack.chat(ignore_eos=True).json()["choices"][0]["message"]["content"]
    choice = stack.chat(ignore_eos=True, stop=text[3]).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == text[: text.index(text[3])]


def test_unknown_model(stack: Stack) -> None:
    refused(stack.chat(model="gpt-4"), 404, "model_not_found", "model")


def test_unsupported_parameter(stack: Stack) -> None:
    refused(stack.chat(best_of=3), 400, "unsupported_parameter", "best_of")


def test_malformed_json(stack: Stack) -> None:
    response = stack.client.post(
        "/v1/chat/completions", content=b"{", headers={"content-type": "application/json"}
    )
    refused(response, 400, "invalid_json")


def test_another_media_type(stack: Stack) -> None:
    response = stack.client.post("/v1/chat/completions", content=json.dumps(chat_body()).encode())
    refused(response, 415, "unsupported_media_type")


def test_a_prompt_without_room_for_an_answer(stack: Stack) -> None:
    messages = [{"role": "user", "content": "x" * CONTEXT_TOKENS}]
    for stream in (False, True):
        response = stack.chat(messages=messages, stream=stream)
        refused(response, 400, "context_length_exceeded", "messages")


def test_the_longest_prompt_gets_one_token(stack: Stack) -> None:
    messages = [{"role": "user", "content": "x" * (CONTEXT_TOKENS - 2)}]
    answer = stack.chat(messages=messages, ignore_eos=True).json()
    assert answer["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("key", ["nonsense", KEY_PREFIX + "x" * 43, "x" * 5000])
def test_wrong_key(stack: Stack, key: str) -> None:
    response = stack.client.post(
        "/v1/chat/completions", json=chat_body(), headers={"authorization": f"Bearer {key}"}
    )
    refused(response, 401, "invalid_api_key")
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_wrong_key_is_refused_before_the_body_is_judged(stack: Stack) -> None:
    response = stack.client.post(
        "/v1/chat/completions", content=b"{", headers={"authorization": "Bearer no"}
    )
    refused(response, 401, "invalid_api_key")


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, zstd"])
def test_a_compressed_body_is_not_inflated(stack: Stack, encoding: str) -> None:
    response = stack.client.post(
        "/v1/chat/completions",
        content=gzip.compress(json.dumps(chat_body()).encode()),
        headers={"content-type": "application/json", "content-encoding": encoding},
    )
    refused(response, 415, "unsupported_media_type")


def test_oversized_body(stack: Stack) -> None:
    messages = [{"role": "user", "content": "x" * 5000}]
    refused(stack.chat(messages=messages), 413, "body_too_large")


def test_oversized_body_of_undeclared_length(stack: Stack) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    response = stack.client.post(
        "/v1/chat/completions", content=chunks(), headers={"content-type": "application/json"}
    )
    refused(response, 413, "body_too_large")


def test_unknown_routes(stack: Stack) -> None:
    for path in ("/v1/images", "/v1/", "/v1/chat", "/v1/chat/completions/"):
        refused(stack.client.post(path, json={}), 404, "unsupported_endpoint")
    outside = stack.client.get("/admin")
    assert (outside.status_code, outside.json()["code"]) == (404, "not_found")
    assert outside.headers["content-type"] == "application/problem+json"


def test_wrong_method(stack: Stack) -> None:
    response = stack.client.get("/v1/chat/completions")
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


def test_models(stack: Stack) -> None:
    assert [entry["id"] for entry in stack.client.get("/v1/models").json()["data"]] == [MODEL]
    assert stack.client.get(f"/v1/models/{MODEL}").json()["id"] == MODEL
    refused(stack.client.get("/v1/models/other"), 404, "model_not_found", "model")
    anonymous = stack.client.get("/v1/models", headers={"authorization": ""})
    refused(anonymous, 401, "invalid_api_key")


def test_a_model_that_is_listed_is_found(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.worker_load.Breaker.allows", lambda *_: False)
    refused(stack.chat(), 503, "upstream_unavailable")
    assert [model["id"] for model in stack.client.get("/v1/models").json()["data"]] == [MODEL]
    assert stack.client.get(f"/v1/models/{MODEL}").status_code == 200


@pytest.mark.parametrize("nonce", ["", "ab", "AB" * 32, "ab" * 33, "zz" * 32])
@pytest.mark.parametrize("node", [{}, {"node": "worker-0"}])
def test_bad_nonces(stack: Stack, nonce: str, node: dict[str, str]) -> None:
    response = stack.client.get("/v1/attestation", params={"nonce": nonce, **node})
    refused(response, 400, "nonce_length", "nonce")


def test_own_and_relayed_evidence(stack: Stack) -> None:
    own = stack.client.get("/v1/attestation", params={"nonce": NONCE})
    assert own.headers["cache-control"] == "no-store"
    assert NONCE in own.json()["statement"]
    assert own.json()["keyset"]["mode"] == "terminate"
    assert [key["host"] for key in own.json()["keyset"]["tls"]] == ["localhost", "127.0.0.1"]
    node = stack.client.get("/v1/attestation", params={"nonce": NONCE, "node": "worker-0"}).json()
    assert NONCE in node["statement"]
    assert node["keyset"]["replica"] == "worker-0"
    lease = stack.client.get("/v1/nodes").json()["data"][0]
    active, pending = (key["config_sha256"] for key in node["keyset"]["ohttp"])
    assert active == lease["key_config_sha256"] != pending
    other = stack.client.get("/v1/attestation", params={"nonce": NONCE, "node": "worker-9"})
    refused(other, 404, "node_not_found", "node")


def test_nodes_state_their_lease(stack: Stack) -> None:
    (node,) = stack.client.get("/v1/nodes").json()["data"]
    assert node["state"] == "verified"
    assert (node["tier"], node["simulated"], node["code"]) == ("warning", True, None)


def test_probes(stack: Stack) -> None:
    assert stack.client.get("/healthz").json() == {"status": "alive"}
    ready = stack.client.get("/readyz").json()
    assert ready == {"status": "ready", "simulated": True, "models": [MODEL]}


@pytest.mark.parametrize(
    "raw",
    [
        b"NONSENSE\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["line", "length", "smuggling"],
)
def test_broken_http_is_not_answered_as_a_request(stack: Stack, raw: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as raw_socket:
        raw_socket.settimeout(PATIENCE_S)
        raw_socket.connect(str(stack.config.paths.run_dir / "gateway.sock"))
        raw_socket.sendall(raw)
        response = http.client.HTTPResponse(raw_socket)
        response.begin()
        assert response.status in {400, 401}


def test_a_traceparent_joins_and_junk_does_not(stack: Stack) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    for traceparent in (f"00-{trace_id}-b7ad6b7169203331-01", "junk"):
        response = stack.client.post(
            "/v1/chat/completions", json=chat_body(), headers={"traceparent": traceparent}
        )
        assert response.status_code == 200
    contexts = [span.get_span_context() for span in stack.spans("chat ")]
    traces = {f"{context.trace_id:032x}" for context in contexts if context is not None}
    assert trace_id in traces


def test_broken_engine_fails_the_request_only(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:

        def explode(_plan: Any) -> None:
            raise RuntimeError("the prompt was hello")

        stack.engine.runner.before_run = explode
        refused(stack.chat(), 500, "generation_failed")
        events = stack.chat(stream=True).text.strip().split("\n\n")
        assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "generation_failed"
        stack.engine.runner.before_run = lambda _plan: None
        assert stack.chat().status_code == 200


def test_a_fault_of_ours_is_an_error_in_the_paths_own_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: Any) -> None:
        raise RuntimeError("the prompt was hello")

    with running_stack(tmp_path) as stack:
        monkeypatch.setattr("gateway.workers.WorkerDirectory.models", explode)
        monkeypatch.setattr("gateway.workers.WorkerDirectory.node_for", explode)
        monkeypatch.setattr("gateway.worker.app.WorkerState.require_ready", explode)
        refused(stack.chat(), 500, "internal_error")
        probe = stack.client.get("/readyz")
        with unix_client(stack.config.worker.socket) as worker:
            stats = worker.get("/stats")
        monkeypatch.undo()
    for response in (probe, stats):
        assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "RuntimeError" in caplog.text
    assert "hello" not in caplog.text
