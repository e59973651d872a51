"""Sealed requests that must not be acted on: attacks 17 to 21 of docs/threat-model.md."""

import dataclasses
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    ClientRequest,
    DecryptFailed,
    ServerKey,
    ServerRequest,
    bhttp,
    parse_key_configs,
)
from gateway.channel_keys import ChannelKeys
from tests.attestation.channel.test_ohttp import load, server_keys_of
from tests.e2e.negatives.conftest import MakeScene
from tests.e2e.negatives.scene import CANARY, CHAT, Scene, scene
from tests.gateway.support import make_key
from tests.support.patience import PATIENCE_S

DOOR = "/ohttp"
ONE_TEXT = "The encapsulated message could not be opened."
NUM_TIMED = 300
NOISE = 0.25  # between the fastest of so many


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("door"), tiny_model) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_of_the_last_test(request: pytest.FixtureRequest) -> None:
    if "shared" in request.fixturenames:
        made: Scene = request.getfixturevalue("shared")
        made.computed.clear()
        made.answers.clear()


def inner(made: Scene, **changes: Any) -> bhttp.Request:
    body = json.dumps(made.running.body(CANARY)).encode()
    fields = (("authorization", f"Bearer {made.running.key}"), ("content-type", "application/json"))
    request = bhttp.Request(
        method="POST", authority="gateway", path=CHAT, fields=fields, content=body
    )
    return dataclasses.replace(request, **changes)


def seal(made: Scene, message: bytes) -> tuple[ClientRequest, bytes]:
    with made.running.http() as client:
        config = parse_key_configs(client.get("/.well-known/ohttp-gateway").content)[0]
    sealed = ClientRequest(config, rng=os.urandom)
    return sealed, sealed.seal_message(message)


def post(made: Scene, body: bytes, media_type: str = CHUNKED_REQUEST_TYPE) -> httpx.Response:
    """With no credential outside."""
    made.begin()
    running = made.running
    with httpx.Client(
        base_url=running.base_url, verify=running.tls_context(), timeout=PATIENCE_S
    ) as client:
        answer = client.post(DOOR, content=body, headers={"content-type": media_type})
    made.answers.append(answer.text)
    return answer


def ask(made: Scene, request: bhttp.Request) -> tuple[int, Any]:
    """The status and JSON inside the seal."""
    sealed, body = seal(made, bhttp.serialize_request(request))
    answer = post(made, body)
    made.answers.clear()  # sealed, and its owner may read it
    assert answer.status_code == 200
    response = bhttp.parse_response(sealed.response_opener().open_message(answer.content))
    return response.status, json.loads(response.content)


def assert_refused(made: Scene, answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    made.wait_for_event("request_refused", code=code, endpoint=DOOR)
    made.assert_nothing_computed()
    made.assert_no_secret()


# -- 17: bodies that do not open ---------------------------------------------------------------


def test_every_published_bad_body(shared: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    document = load("ohttp_negative.json")
    monkeypatch.setattr(ChannelKeys, "opening", lambda _self: server_keys_of(document))
    bad = [vector for vector in document["vectors"] if vector["expect"] != "accept"]
    assert len(bad) == 22
    for vector in bad:
        refuse_published(shared, vector["id"], vector)
    shared.assert_no_secret()


def refuse_published(shared: Scene, name: str, vector: dict[str, str]) -> None:
    answer = post(shared, bytes.fromhex(vector["body"]), vector["content_type"])
    expect, shown = vector["expect"], (name, answer.text)
    if expect in ("malformed_inner", "refuse_target"):
        assert answer.status_code == 200, shown  # it opened: the rest is told inside the seal
        shared.wait_for_event("request_refused", code="malformed_inner", endpoint=DOOR)
    elif expect == "key_config_error":
        assert (answer.status_code, answer.json()["code"]) == (400, expect), shown
        shared.wait_for_event("request_refused", code=expect, endpoint=DOOR)
    else:
        assert (answer.status_code, answer.json()["code"]) == (400, "decrypt_failed"), shown
        assert answer.json()["detail"] == ONE_TEXT, shown
        named = {"decrypt_error": "decrypt", "malformed": "malformed", "truncated": "truncated"}
        fields = {"detail": named[expect]} if expect in named else {}
        shared.wait_for_event("request_refused", code="decrypt_failed", **fields)
    shared.assert_nothing_computed()


def test_where_a_bit_was_flipped_takes_no_other_time() -> None:
    """The tag covers all of a chunk, so that nothing is compared until all was read."""
    keys = {7: ServerKey.generate(key_id=7)}
    body = ClientRequest(keys[7].config, rng=os.urandom).seal_message(bytes(8192))
    places = (60, len(body) // 2, len(body) - 1)
    flipped = [body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in places]
    fastest_s = [float("inf")] * len(flipped)
    for _ in range(NUM_TIMED):
        for index, each in enumerate(flipped):
            started_s = time.perf_counter()
            with pytest.raises(DecryptFailed):
                ServerRequest(keys).open_message(each)
            fastest_s[index] = min(fastest_s[index], time.perf_counter() - started_s)
    assert max(fastest_s) < (1 + NOISE) * min(fastest_s)


# -- 18: replays -------------------------------------------------------------------------------


def dated(offset: timedelta) -> tuple[tuple[str, str], ...]:
    at = datetime.now(UTC) + offset  # noqa: TID251 - the server's clock
    return (("date", format_datetime(at, usegmt=True)),)


@pytest.mark.parametrize("is_dated", [False, True])
def test_a_request_that_was_recorded(shared: Scene, is_dated: bool) -> None:
    request = inner(shared)
    if is_dated:
        request = dataclasses.replace(request, fields=request.fields + dated(timedelta()))
    _, body = seal(shared, bhttp.serialize_request(request))
    assert post(shared, body).status_code == 200
    assert len(shared.computed) == 1
    shared.computed.clear()
    assert_refused(shared, post(shared, body), 409, "replay_detected")


def test_a_request_of_another_hour(shared: Scene) -> None:
    request = inner(shared)
    for hours in (-1, 1):
        old = dataclasses.replace(request, fields=request.fields + dated(timedelta(hours=hours)))
        _, body = seal(shared, bhttp.serialize_request(old))
        assert_refused(shared, post(shared, body), 400, "date_outside_window")


def test_a_request_that_was_recorded_on_its_way_to_another_replica(
    shared: Scene, make_scene: MakeScene
) -> None:
    """Each has keys of its own, so there is no memory of replays to share."""
    _, body = seal(shared, bhttp.serialize_request(inner(shared)))
    with make_scene() as other:
        assert_refused(other, post(other, body), 400, "key_config_error")


# -- 19: downgrades ----------------------------------------------------------------------------


def test_tls_1_2_is_not_spoken(shared: Scene) -> None:
    old = shared.running.tls_context()
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", shared.running.gateway.port)) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        old.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.parametrize("media_type", ["application/json", "text/plain", "message/bhttp", ""])
def test_nothing_in_clear_through_the_sealed_door(shared: Scene, media_type: str) -> None:
    body = json.dumps(shared.running.body("in clear")).encode()
    assert_refused(shared, post(shared, body, media_type), 415, "unsupported_media_type")


@pytest.mark.parametrize("key", ["", "zz" * 32, "ab" * 31, "AB" * 33])
def test_a_body_that_says_it_is_sealed_and_is_not(shared: Scene, key: str) -> None:
    """EHBP: the header asks for the seal, so that what is in clear is never taken as such."""
    shared.begin()
    with shared.running.http() as client:
        headers = {"ehbp-encapsulated-key": key}
        answer = client.post(CHAT, json=shared.running.body(CANARY), headers=headers)
    assert answer.status_code in {400, 422}
    shared.wait_for_event("request_refused", code="decrypt_failed", endpoint=CHAT)
    shared.assert_nothing_computed()
    shared.assert_no_secret()


# -- 20: requests aimed elsewhere --------------------------------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every address that anything of this process looks up or connects to by name or IP."""
    found: list[Any] = []
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def noted_look_up(host: Any, *args: Any, **options: Any) -> Any:
        found.append(host)
        return look_up(host, *args, **options)

    def noted_connect(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX:
            found.append(address[0])
        return connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", noted_look_up)
    monkeypatch.setattr(socket.socket, "connect", noted_connect)
    return found


@pytest.mark.parametrize(
    "authority", ["169.254.169.254", "evil.example:443", "127.0.0.1:22", "[::1]"]
)
def test_a_request_for_another_host_goes_to_nobody(
    shared: Scene, called: list[Any], authority: str
) -> None:
    """Its authority is read by nobody: the paths here are this gateway's own, or there are none."""
    request = inner(shared, authority=authority, path="/latest/meta-data/", method="GET")
    status, answer = ask(shared, dataclasses.replace(request, content=b""))
    assert (status, answer["code"]) == (404, "not_found")
    assert set(called) <= {"127.0.0.1"}  # the test's own client
    shared.assert_nothing_computed()
    shared.assert_no_secret()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/../admin", "unsupported_endpoint"),
        ("/v1/%2e%2e/admin", "unsupported_endpoint"),
        ("//v1/chat/completions", "not_found"),
        ("/v1//chat/completions", "unsupported_endpoint"),
        ("/v1/chat/completions/", "unsupported_endpoint"),
        ("/v1/models/../../../etc/passwd", "model_not_found"),
    ],
)
def test_a_path_that_leads_out(shared: Scene, called: list[Any], path: str, code: str) -> None:
    method = "GET" if "models" in path else "POST"
    status, answer = ask(shared, inner(shared, path=path, method=method))
    assert (status, answer.get("error", answer)["code"]) == (404, code)
    assert set(called) <= {"127.0.0.1"}
    shared.assert_nothing_computed()
    shared.assert_no_secret()


def test_no_tunnel_is_opened(shared: Scene, called: list[Any]) -> None:
    _, body = seal(shared, b"\x00\x07CONNECT\x05https\x0bexample:443\x00")
    post(shared, body)
    shared.wait_for_event("request_refused", code="malformed_inner", endpoint=DOOR)
    shared.assert_nothing_computed()
    shared.assert_no_secret()
    assert set(called) <= {"127.0.0.1"}
    with shared.running.http() as client:
        assert client.request("CONNECT", "/v1/models").status_code in {404, 405}


# -- 21: headers that say two things -----------------------------------------------------------


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\ny", b"a\0b", b" lead", b"trail "])
def test_a_field_that_would_be_two(shared: Scene, value: bytes) -> None:
    def text(data: bytes) -> bytes:
        return bytes([len(data)]) + data

    head = b"\x00" + text(b"POST") + text(b"https") + text(b"gateway") + text(CHAT.encode())
    fields = text(b"x-a") + text(value)
    _, body = seal(shared, head + text(fields) + text(b"{}") + text(b""))
    answer = post(shared, body)
    assert answer.status_code == 200
    shared.wait_for_event("request_refused", code="malformed_inner", endpoint=DOOR)
    shared.assert_nothing_computed()
    shared.assert_no_secret()


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Transfer-Encoding: gzip, chunked",
        b"Content-Length: +5",
        b"Host: other",
        b"X-A: a\r\n folded",
    ],
)
def test_a_body_of_two_lengths(shared: Scene, fields: bytes) -> None:
    """Outside the seal; the second request in the body must never be one."""
    smuggled = b"0\r\n\r\nPOST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /ohttp HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n"
    context = shared.running.tls_context()
    with (
        socket.create_connection(
            ("127.0.0.1", shared.running.gateway.port), timeout=PATIENCE_S
        ) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        tls.sendall(head + smuggled)
        answer = b""
        while piece := tls.recv(65536):
            answer += piece
            if b"\r\n\r\n" in answer:
                break
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 415 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1 ") == 1
    shared.assert_nothing_computed()
    shared.assert_no_secret()


def test_the_credential_inside_the_seal_is_the_one_that_counts(shared: Scene) -> None:
    other = make_key(shared.running.config, tenant="other")
    good = inner(shared)
    bad = dataclasses.replace(
        good, fields=(("authorization", "Bearer sk-starshade-nobody"), *good.fields[1:])
    )
    for request, outer, expected in ((bad, shared.running.key, 401), (good, other, 200)):
        sealed, body = seal(shared, bhttp.serialize_request(request))
        with shared.running.http(key=outer) as client:
            headers = {"content-type": CHUNKED_REQUEST_TYPE}
            answer = client.post(DOOR, content=body, headers=headers)
        response = bhttp.parse_response(sealed.response_opener().open_message(answer.content))
        assert response.status == expected
    assert len(shared.computed) == 1
    spans = shared.running.exported()
    assert '"starshade.tenant.id": "acme"' in spans
    assert '"starshade.tenant.id": "other"' not in spans


def test_two_credentials_are_none(shared: Scene) -> None:
    request = inner(shared)
    twice = dataclasses.replace(request, fields=(*request.fields, request.fields[0]))
    status, answer = ask(shared, twice)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    shared.assert_nothing_computed()
    shared.assert_no_secret()
