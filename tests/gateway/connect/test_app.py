"""Does a program that knows nothing of all this get its answers, sealed, and no wrong ones?"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from starlette.responses import JSONResponse

from attestation.channel import bhttp
from attestation.transport import (
    EvidenceRefused,
    SessionKeeper,
    async_client_over,
    gateway_keeper,
    gateway_source,
)
from gateway.connect.app import ConnectApp, host_name
from gateway.connect.forward import Forwarder
from gateway.connect.streams import Streams
from gateway.connect.watch import Watch
from gateway.problems import GatewayError
from gateway.process import utc_now
from tests.gateway.support import wait_until
from tests.support.attested_gateway import Running, pieces_of
from tests.support.patience import PATIENCE_S
from tests.support.servers import ServerThread

SECRET = "the-canary-sings-at-noon"
OWN_KEY = "sk-starshade-of-the-program"
KEPT_KEY = "sk-starshade-kept-here"


@dataclass
class Connected:
    """`starshade connect` in this process, and a client that speaks plain HTTP to it."""

    remote: Running
    app: ConnectApp
    keeper: SessionKeeper
    streams: Streams
    client: httpx.Client
    url: str
    told: list[str]


@contextlib.contextmanager
def connected_to(remote: Running, *, key: str | None = None) -> Iterator[Connected]:
    apps: list[ConnectApp] = []

    def on_refused(refused: EvidenceRefused) -> None:
        apps[0].on_refused(refused)

    keeper = gateway_keeper(
        remote.url, policy="development", ca_file=remote.ca_file, on_refused=on_refused
    )
    streams, told = Streams(), list[str]()
    forwarder = Forwarder(
        client=async_client_over(keeper, remote.url, ca_file=remote.ca_file),
        target=gateway_source(remote.url),
        key=key,
        streams=streams,
    )
    watch = Watch(keeper=keeper, utc_now=utc_now, tell=told.append)
    apps.append(ConnectApp(forwarder, keeper, watch))
    keeper.require()
    with ServerThread(apps[0]) as server:
        base = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=base, timeout=PATIENCE_S) as client:
            yield Connected(remote, apps[0], keeper, streams, client, f"{base}/v1", told)


@pytest.fixture
def connected(running: Running) -> Iterator[Connected]:
    with connected_to(running) as connected:
        yield connected


def test_a_request_is_sealed_and_its_answer_comes_back(connected: Connected) -> None:
    response = connected.client.post(
        "/v1/chat/completions?a=%2F", content=SECRET, headers={"user-agent": "curl/8"}
    )
    assert response.status_code == 200
    assert response.text == f"POST/v1/chat/completions?a=%2F{SECRET}"
    (posted,) = connected.remote.gateway.posted
    assert SECRET.encode() not in posted
    assert dict(connected.remote.gateway.opened[0].fields)["user-agent"] == "curl/8"


@pytest.mark.parametrize("name", ["x-title", "user-agent", "authorization"])
@pytest.mark.parametrize("value", ["\N{LATIN SMALL LETTER E WITH ACUTE}".encode(), b"\xe9\xff"])
@pytest.mark.parametrize("key", [None, KEPT_KEY])
def test_headers_travel_as_the_bytes_that_they_are(
    running: Running, name: str, value: bytes, key: str | None
) -> None:
    with connected_to(running, key=key) as connected:
        response = connected.client.get("/v1/models", headers=[(name.encode(), value)])
    assert response.status_code == 200
    is_replaced = name == "authorization" and key is not None
    expected = f"Bearer {key}" if is_replaced else value.decode("latin-1")
    sent = [content for header, content in running.gateway.opened[0].fields if header == name]
    assert sent == [expected]


def test_fields_of_the_connection_stay_on_it(connected: Connected) -> None:
    headers = {"connection": "close, X-Hop", "x-hop": "1", "te": "trailers", "x-end": "2"}
    connected.client.get("/v1/models", headers={**headers, "proxy-connection": "keep-alive"})
    sent = dict(connected.remote.gateway.opened[0].fields)
    assert sent["x-end"] == "2"
    assert not sent.keys() & {"connection", "x-hop", "te", "proxy-connection"}


def test_status_headers_and_errors_are_the_gateways_own(connected: Connected) -> None:
    async def limited(_request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
        return 429, pieces_of(b'{"error": {"code": "rate_limit_exceeded"}}')

    connected.remote.gateway.answer = limited
    response = connected.client.get("/v1/models")
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "rate_limit_exceeded"
    assert response.headers["content-type"] == "text/plain"


@pytest.mark.parametrize(
    ("brought", "sent"),
    [
        (None, f"Bearer {KEPT_KEY}"),
        ("Bearer none", f"Bearer {KEPT_KEY}"),
        (f"Bearer {OWN_KEY}", f"Bearer {OWN_KEY}"),
        (f"bearer  {OWN_KEY}", f"bearer  {OWN_KEY}"),
    ],
)
def test_the_kept_key_is_for_requests_without_one(
    running: Running, brought: str | None, sent: str
) -> None:
    headers = {} if brought is None else {"authorization": brought}
    with connected_to(running, key=KEPT_KEY) as connected:
        connected.client.get("/v1/models", headers=headers)
    assert dict(running.gateway.opened[0].fields)["authorization"] == sent


def test_without_a_kept_key_nothing_is_added(connected: Connected) -> None:
    connected.client.get("/v1/models")
    assert "authorization" not in dict(connected.remote.gateway.opened[0].fields)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "evil.example"}, 421, "unknown_host"),
        ({"host": "evil.example:8445"}, 421, "unknown_host"),
        ({"origin": "https://evil.example"}, 403, "origin_not_allowed"),
        ({"origin": "null"}, 403, "origin_not_allowed"),
        ({"sec-fetch-site": "cross-site"}, 403, "origin_not_allowed"),
        ({"sec-fetch-site": "same-site"}, 403, "origin_not_allowed"),
    ],
)
def test_web_pages_are_refused(
    connected: Connected, headers: dict[str, str], status: int, code: str
) -> None:
    for method in ("GET", "POST"):
        response = connected.client.request(method, "/v1/models", headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert connected.remote.gateway.posted == []


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_person_may_open_an_address_in_a_browser(connected: Connected, site: str) -> None:
    response = connected.client.get("/verdict", headers={"sec-fetch-site": site})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:8445", "localhost"),
        ("127.0.0.1:8445", "127.0.0.1"),
        ("[::1]:8445", "::1"),
        ("::1", "::1"),
        ("", ""),
    ],
)
def test_a_host_header_names_a_machine(host: str, name: str) -> None:
    assert host_name(host) == name


def test_nothing_but_the_api_is_served(connected: Connected) -> None:
    response = connected.client.get("/metrics")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert connected.remote.gateway.posted == []


def test_the_verdict_can_be_read(connected: Connected) -> None:
    verdict = connected.client.get("/verdict").json()
    assert (verdict["accepted"], verdict["simulated"]) == (True, True)
    assert connected.client.get("/readyz").json() == {"status": "ready"}


def test_a_refusal_stops_requests_and_says_why(connected: Connected) -> None:
    connected.remote.gateway.flip_bit = True
    with pytest.raises(EvidenceRefused):
        connected.keeper.renew(than=connected.keeper.session).result()
    response = connected.client.post("/v1/chat/completions", content=SECRET)
    assert response.status_code == 503
    error = response.json()["error"]
    assert error["code"] == "upstream_verification_failed"
    assert "quote_signature" in error["message"]
    assert connected.client.get("/verdict").status_code == 503
    assert connected.client.get("/readyz").status_code == 503
    assert connected.remote.gateway.posted == []
    wait_until(lambda: any("REFUSED" in line for line in connected.told))


def test_a_gateway_that_went_away_is_told_as_such(connected: Connected) -> None:
    async def gone(_request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
        raise RuntimeError("gone")

    connected.remote.gateway.outer_reply = JSONResponse({"code": "overloaded"}, 503)
    response = connected.client.get("/v1/models")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")


def _events(gate: threading.Event) -> Any:
    """A stream of two events; the second waits."""

    async def answer(_request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
        async def events() -> AsyncIterator[bytes]:
            yield b'data: {"n": 1}\n\n'
            await asyncio.to_thread(gate.wait, 20)
            yield b"data: [DONE]\n\n"

        return 200, events()

    return answer


@pytest.fixture
def streaming(connected: Connected) -> Iterator[tuple[Connected, threading.Event]]:
    """The remote's answers are event streams that stop in the middle until the gate opens."""
    gate = threading.Event()
    connected.remote.gateway.answer = _events(gate)
    connected.remote.gateway.media_type = "text/event-stream"
    yield connected, gate
    gate.set()


def test_events_arrive_as_they_are_sent(streaming: tuple[Connected, threading.Event]) -> None:
    connected, gate = streaming
    with connected.client.stream("POST", "/v1/chat/completions", content=b"{}") as response:
        assert response.headers["content-type"] == "text/event-stream"
        pieces = response.iter_raw()
        assert next(pieces) == b'data: {"n": 1}\n\n'
        gate.set()
        assert b"".join(pieces) == b"data: [DONE]\n\n"


def test_a_refusal_ends_streams_under_way_within_a_second(
    streaming: tuple[Connected, threading.Event],
) -> None:
    connected, _gate = streaming
    with connected.client.stream("POST", "/v1/chat/completions", content=b"{}") as response:
        pieces = response.iter_raw()
        next(pieces)
        connected.remote.gateway.flip_bit = True
        connected.keeper.renew(than=connected.keeper.session)
        rest = b"".join(pieces)
    error = json.loads(rest.removeprefix(b"data: "))["error"]
    assert error["code"] == "upstream_verification_failed"
    assert b"[DONE]" not in rest
    wait_until(lambda: connected.streams.num_open == 0)


def test_evidence_that_ran_out_leaves_streams_some_time(
    streaming: tuple[Connected, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.connect.app.RAN_OUT_S", 0.3)
    connected, _gate = streaming
    with connected.client.stream("POST", "/v1/chat/completions", content=b"{}") as response:
        pieces = response.iter_raw()
        next(pieces)
        began_s = time.monotonic()
        connected.app.on_refused(EvidenceRefused("keyset_expired", "it has expired", None))
        rest = b"".join(pieces)
    assert time.monotonic() - began_s >= 0.3
    error = json.loads(rest.removeprefix(b"data: "))["error"]
    assert error["code"] == "upstream_verification_failed"


async def test_a_verdict_that_nobody_renewed_leaves_streams_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.connect.app.LOOK_S", 0.01)
    monkeypatch.setattr("gateway.connect.app.RAN_OUT_S", 0.1)
    keeper: Any = SimpleNamespace(session=object())
    forwarder: Any = SimpleNamespace(streams=Streams())
    app = ConnectApp(forwarder, keeper, Watch(keeper=keeper, utc_now=utc_now, tell=print))
    looking = asyncio.ensure_future(app._end_lapsed())
    stream = forwarder.streams.open()
    await asyncio.sleep(0.05)
    began_s, keeper.session = time.monotonic(), None
    with pytest.raises(GatewayError) as caught:
        async with stream.interruptible():
            await asyncio.sleep(20)
    looking.cancel()
    assert caught.value.code == "upstream_verification_failed"
    assert time.monotonic() - began_s >= 0.1


def test_a_client_that_leaves_ends_the_stream_behind_it(
    streaming: tuple[Connected, threading.Event],
) -> None:
    connected, _gate = streaming
    with connected.client.stream("POST", "/v1/chat/completions", content=b"{}") as response:
        pieces = response.iter_raw()  # kept: the end of it is the end of the connection
        next(pieces)
        assert connected.streams.num_open == 1
    wait_until(lambda: connected.streams.num_open == 0)


def test_a_stream_that_is_cut_ends_in_an_error_event(
    streaming: tuple[Connected, threading.Event],
) -> None:
    connected, gate = streaming
    gate.set()
    connected.remote.gateway.cut = True
    response = connected.client.post("/v1/chat/completions", content=b"{}")
    last = response.text.rstrip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "upstream_truncated"


def test_a_whole_answer_that_is_cut_does_not_read_as_one(connected: Connected) -> None:
    connected.remote.gateway.cut = True
    with pytest.raises(httpx.RemoteProtocolError):
        connected.client.get("/v1/models")


def test_keys_may_rotate_under_it(connected: Connected) -> None:
    for _ in range(3):
        assert connected.client.get("/v1/models").status_code == 200
        connected.remote.gateway.rotate()
    assert connected.remote.gateway.num_attested == 3


def test_the_unmodified_openai_package_needs_an_address_alone(connected: Connected) -> None:
    async def chat(_request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
        message = {"role": "assistant", "content": "Hello!"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return 200, pieces_of(json.dumps({**whole, "choices": [choice]}).encode())

    connected.remote.gateway.answer = chat
    connected.remote.gateway.media_type = "application/json"
    with openai.OpenAI(base_url=connected.url, api_key="unused", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": SECRET}]
        )
    assert answer.choices[0].message.content == "Hello!"
    assert SECRET.encode() not in connected.remote.gateway.posted[0]
