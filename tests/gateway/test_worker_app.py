"""What does the worker's socket answer, to whom, and in which words?  Sealed by a real client."""

import gc
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.requests import Request
from starlette.types import Message

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    CHUNKED_RESPONSE_TYPE,
    PLAIN_REQUEST_TYPE,
    ChunkLimits,
    ClientRequest,
    KeyConfig,
    ServerKey,
    bhttp,
    parse_key_configs,
)
from attestation.channel.bhttp import http_date
from attestation.channel.padding import padded_length
from gateway.problems import GatewayError
from gateway.worker.app import WorkerApp
from gateway.worker.sealing import open_request
from tests.gateway.support import (
    MODEL,
    HashEngine,
    ListeningEngine,
    chat_body,
    make_config,
    make_worker_app,
    wait_until,
)
from tests.support.patience import PATIENCE_S
from tests.support.servers import ServerThread, unix_client

NONCE = "ab" * 32
Fields = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config = make_config(tmp_path_factory.mktemp("worker"), gateway__max_body_bytes=4096)
    config.worker.socket.parent.mkdir(parents=True)
    app = make_worker_app(config, HashEngine(), InMemorySpanExporter())
    with (
        ServerThread(app, uds=config.worker.socket),
        unix_client(config.worker.socket) as client,
    ):
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def now() -> datetime:
    """The worker's own clock is the real one."""
    return datetime.now(UTC)  # noqa: TID251


def key_of(worker: httpx.Client) -> KeyConfig:
    """The Active one."""
    return parse_key_configs(worker.get("/keys").content)[0]


def seal(
    worker: httpx.Client,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    fields: Fields = (),
    content: bytes | None = None,
) -> tuple[ClientRequest, bytes]:
    sealed = ClientRequest(key_of(worker), rng=os.urandom)
    body = json.dumps(chat_body()).encode() if content is None else content
    request = bhttp.Request(method=method, path=path, fields=fields, content=body)
    return sealed, sealed.seal_message(bhttp.serialize_request(request))


def post(
    worker: httpx.Client, body: bytes, media_type: str = CHUNKED_REQUEST_TYPE
) -> httpx.Response:
    return worker.post("/ohttp", content=body, headers={"content-type": media_type})


def ask(worker: httpx.Client, **request: Any) -> bhttp.Response:
    sealed, body = seal(worker, **request)
    answer = post(worker, body)
    assert answer.headers["content-type"] == CHUNKED_RESPONSE_TYPE
    return bhttp.parse_response(sealed.response_opener().open_message(answer.content))


def inner_code(response: bhttp.Response) -> tuple[int, str]:
    return response.status, json.loads(response.content)["error"]["code"]


def test_what_the_model_brought_is_not_looked_through_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.worker.wiring.gc", gc)
    gc.unfreeze()
    config = make_config(tmp_path)
    config.worker.socket.parent.mkdir(parents=True)
    app = make_worker_app(config, HashEngine(), InMemorySpanExporter())
    with ServerThread(app, uds=config.worker.socket):
        wait_until(lambda: gc.get_freeze_count() > 10_000)
    gc.unfreeze()


def test_a_chat_inside(worker: httpx.Client) -> None:
    response = ask(worker)
    assert response.status == 200
    assert json.loads(response.content)["model"] == MODEL


def test_each_salt_is_a_tenant_of_the_engine_that_does_not_tell_it(tmp_path: Path) -> None:
    engine = ListeningEngine()
    config = make_config(tmp_path)
    config.worker.socket.parent.mkdir(parents=True)
    app = make_worker_app(config, engine, InMemorySpanExporter())
    with (
        ServerThread(app, uds=config.worker.socket),
        unix_client(config.worker.socket) as client,
    ):
        wait_until(lambda: client.get("/readyz").status_code == 200)
        for salt in ("ab" * 32, "cd" * 32, "ab" * 32):
            assert ask(client, fields=(("starshade-cache-salt", salt),)).status == 200
    first, other, again = (request.tenant for request in engine.seen)
    assert first == again != other
    assert "abab" not in first


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"content": b"{"}, (400, "invalid_json")),
        ({"path": "/v1/images"}, (404, "unsupported_endpoint")),
        ({"path": "/v1/../admin"}, (404, "unsupported_endpoint")),
        ({"path": "//v1/models", "method": "GET"}, (404, "unsupported_endpoint")),
        ({"method": "GET"}, (405, "method_not_allowed")),
        ({"content": json.dumps(chat_body(model="x")).encode()}, (404, "model_not_found")),
    ],
    ids=str,
)
def test_errors_inside(
    worker: httpx.Client, request_: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert inner_code(ask(worker, **request_)) == expected


@pytest.mark.parametrize("offset_s", [-310, 310])
def test_a_date_outside_the_window(worker: httpx.Client, offset_s: int) -> None:
    date = http_date(now() + timedelta(seconds=offset_s))
    _, body = seal(worker, fields=(("date", date),))
    answer = post(worker, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "date_outside_window")
    assert answer.json()["type"].endswith("#date")


@pytest.mark.parametrize("dated", [False, True])
def test_a_replay(worker: httpx.Client, dated: bool) -> None:
    _, body = seal(worker, fields=(("date", http_date(now())),) if dated else ())
    assert post(worker, body).status_code == 200
    again = post(worker, body)
    assert (again.status_code, again.json()["code"]) == (409, "replay_detected")
    assert again.headers["content-type"] == "application/problem+json"


def test_another_key(worker: httpx.Client) -> None:
    known = {key.key_id for key in parse_key_configs(worker.get("/keys").content)}
    other = ServerKey.generate(key_id=min(set(range(256)) - known)).config
    sealed = ClientRequest(other, rng=os.urandom)
    answer = post(worker, sealed.seal_message(b"x"))
    assert (answer.status_code, answer.json()["code"]) == (400, "key_config_error")
    assert answer.json()["type"].endswith("#ohttp-key")


def test_a_salt_that_is_not_understood_is_not_ignored(worker: httpx.Client) -> None:
    for salt in ("zz", "ab" * 65):
        answer = ask(worker, fields=(("starshade-cache-salt", salt),))
        assert inner_code(answer) == (400, "malformed_inner")


@pytest.mark.parametrize("priority", ["3", "-3", "+1", "", "1.0", "high"])
def test_a_priority_that_is_not_understood_is_not_ignored(
    worker: httpx.Client, priority: str
) -> None:
    answer = ask(worker, fields=(("starshade-priority", priority),))
    assert inner_code(answer) == (400, "malformed_inner")


@pytest.mark.parametrize("message", [b"", b"\x05nonsense", b"\x00\x07CONNECT\x05https\x00\x01/"])
def test_what_is_no_request_is_said_inside(worker: httpx.Client, message: bytes) -> None:
    sealed = ClientRequest(key_of(worker), rng=os.urandom)
    answer = post(worker, sealed.seal_message(message))
    assert answer.status_code == 200
    response = bhttp.parse_response(sealed.response_opener().open_message(answer.content))
    assert inner_code(response) == (400, "malformed_inner")


async def test_no_more_is_read_of_a_plain_body_than_it_may_have() -> None:
    pieces = iter([bytes(100)] * 11)

    async def receive() -> Message:
        return {"type": "http.request", "body": next(pieces), "more_body": True}

    headers = [(b"content-type", PLAIN_REQUEST_TYPE.encode())]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    with pytest.raises(GatewayError) as caught:
        await open_request(request, {}, limits=ChunkLimits(max_body_bytes=1000), rng=os.urandom)
    assert caught.value.code == "body_too_large"


def test_too_much(worker: httpx.Client) -> None:
    _, body = seal(worker, content=b"x" * 20_000)
    answer = post(worker, body)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_what_is_not_sealed(worker: httpx.Client) -> None:
    assert post(worker, b"{}", "application/json").json()["code"] == "unsupported_media_type"
    assert post(worker, b"junk").json()["code"] == "decrypt_failed"
    assert worker.get("/v1/models").status_code == 404
    assert worker.get("/ohttp").json()["code"] == "method_not_allowed"


def test_evidence_names_the_keys_that_are_offered(worker: httpx.Client) -> None:
    bundle = worker.get("/attestation", params={"nonce": NONCE})
    assert bundle.headers["cache-control"] == "no-store"
    keyset = bundle.json()["keyset"]
    offered = parse_key_configs(worker.get("/keys").content)
    assert len(offered) == 2
    assert [key["config_sha256"] for key in keyset["ohttp"]] == [key.sha256 for key in offered]
    assert keyset["weights_sha256"] == ["ab" * 32]
    assert worker.get("/attestation").json()["code"] == "nonce_length"


def test_nothing_starts_before_the_final_chunk(worker: httpx.Client) -> None:
    """All but the last byte is there; no request is open, and then none was."""
    _, body = seal(worker)

    def almost() -> Iterator[bytes]:
        yield body[:-1]
        assert worker_stats(worker)["open"] == 0
        raise ConnectionError("gone")

    steps = worker_stats(worker)["step"]
    with pytest.raises(ConnectionError):
        worker.post("/ohttp", content=almost(), headers={"content-type": CHUNKED_REQUEST_TYPE})
    assert worker_stats(worker)["step"] == steps


def worker_stats(worker: httpx.Client) -> dict[str, Any]:
    stats: dict[str, Any] = worker.get("/stats").json()
    return stats


def test_loading_is_said_and_nothing_is_offered(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = make_config(tmp_path_factory.mktemp("loading"))
    config.worker.socket.parent.mkdir(parents=True)
    may_load = threading.Event()

    class SlowEngine(HashEngine):
        def load(self, config: Any, on_progress: Any, observer: Any) -> Any:
            on_progress(0.4)
            assert may_load.wait(PATIENCE_S)
            return super().load(config, on_progress, observer)

    app: WorkerApp = make_worker_app(config, SlowEngine(), InMemorySpanExporter())
    with (
        ServerThread(app, uds=config.worker.socket),
        unix_client(config.worker.socket) as client,
    ):
        loading = {"status": "loading", "progress": 0.4}
        wait_until(lambda: client.get("/readyz").json() == loading)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        evidence = client.get("/attestation", params={"nonce": NONCE})
        assert (evidence.status_code, evidence.json()["code"]) == (503, "worker_not_ready")
        assert post(client, b"x").json()["code"] == "worker_not_ready"
        may_load.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_sizes_on_the_hop_are_padded(worker: httpx.Client, is_streamed: bool) -> None:
    lengths = set()
    for max_tokens in range(1, 6):
        body = chat_body(stream=is_streamed, max_tokens=max_tokens, ignore_eos=True)
        sealed, wire = seal(worker, content=json.dumps(body).encode())
        opener, parser = sealed.response_opener(), bhttp.ResponseParser()
        chunks = opener.feed(post(worker, wire).content)
        pieces = [piece for chunk in chunks for piece in parser.feed(chunk)]
        lengths |= {len(p) for p in pieces} if is_streamed else {len(b"".join(chunks))}
    assert len(lengths) <= 2
    assert all(length in (256, 512, padded_length(length)) for length in lengths)
