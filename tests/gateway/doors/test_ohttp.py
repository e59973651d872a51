"""Is an encapsulated request answered like a plain one, once, and told nothing when it fails?"""

import itertools
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    PLAIN_REQUEST_TYPE,
    ClientRequest,
    DecryptFailed,
    ServerKey,
    bhttp,
)
from attestation.channel.kem import KEM_XWING
from attestation.channel.padding import padded_length
from attestation.receipt import response_digest
from tests.gateway.doors.clients import (
    ask_chunked,
    ask_plain,
    inner_request,
    key_list,
    post,
    seal_chunked,
)
from tests.gateway.support import HashEngine, Stack, chat_body, running_stack, wait_until
from tests.support.patience import PATIENCE_S


def date(offset_s: float = 0) -> tuple[tuple[str, str], ...]:
    at = datetime.now(UTC) + timedelta(seconds=offset_s)  # noqa: TID251 - the server's clock
    return (("date", format_datetime(at, usegmt=True)),)


def require(is_true: bool) -> None:
    assert is_true


def code_of(response: bhttp.Response) -> tuple[int, str]:
    body = json.loads(response.content)
    return response.status, body.get("error", body)["code"]


def plain_answer(stack: Stack) -> str:
    content: str = stack.chat().json()["choices"][0]["message"]["content"]
    return content


@pytest.mark.parametrize("ask", [ask_chunked, ask_plain])
def test_the_answer_is_that_of_a_plain_request(stack: Stack, ask: Any) -> None:
    response = ask(stack, inner_request(stack))
    assert response.status == 200
    answer = json.loads(response.content)["choices"][0]["message"]["content"]
    assert answer == plain_answer(stack)
    fields = dict(response.fields)
    assert fields["content-type"] == "application/json"
    assert fields["x-request-id"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_offered_key_can_be_used(stack: Stack, index: int) -> None:
    config = key_list(stack)[index]
    assert ask_chunked(stack, inner_request(stack), config).status == 200


def test_a_post_quantum_key_is_offered(stack: Stack) -> None:
    assert KEM_XWING in {config.kem_id for config in key_list(stack)}


def test_get_inside(stack: Stack) -> None:
    response = ask_chunked(stack, inner_request(stack, path="/v1/models", method="GET"))
    assert response.status == 200
    assert json.loads(response.content)["data"][0]["id"] == "hash"


@pytest.mark.parametrize("ask", [ask_chunked, ask_plain])
def test_a_stream_ends_with_done(stack: Stack, ask: Any) -> None:
    response = ask(stack, inner_request(stack, chat_body(stream=True)))
    assert dict(response.fields)["content-type"].startswith("text/event-stream")
    events = [e for e in response.content.split(b"\n\n") if e.startswith(b"data:")]
    assert events[-1] == b"data: [DONE]"
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events[:-1]]
    text = "".join(delta.get("content") or "" for delta in deltas)
    assert text == plain_answer(stack)


def test_a_stream_comes_as_it_is_made(tmp_path: Path) -> None:
    """The engine computes its third step only when the first chunk has arrived."""
    engine, num_steps, has_arrived = HashEngine(), itertools.count(1), threading.Event()
    engine.runner.before_run = lambda _plan: (
        None if next(num_steps) <= 2 else require(has_arrived.wait(PATIENCE_S))
    )
    with running_stack(tmp_path, engine=engine) as stack:
        sealed, body = seal_chunked(stack, inner_request(stack, chat_body(stream=True)))
        opener, parser = sealed.response_opener(), bhttp.ResponseParser()
        arrivals = []
        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        with stack.client.stream("POST", "/ohttp", content=body, headers=headers) as answer:
            assert answer.headers["incremental"] == "?1"
            for data in answer.iter_raw():
                for chunk in opener.feed(data):
                    arrivals += parser.feed(chunk)
                if arrivals:
                    has_arrived.set()
        opener.finish()
        parser.finish()
        assert len(arrivals) > 2


def test_the_final_chunk_is_empty(stack: Stack) -> None:
    """A published client drops what the final chunk holds."""
    for body in (chat_body(), chat_body(stream=True)):
        sealed, wire = seal_chunked(stack, inner_request(stack, body))
        opener = sealed.response_opener()
        opener.feed(post(stack, wire).content)
        assert opener.finish() == []


def test_a_client_that_goes_away_ends_the_work(tmp_path: Path) -> None:
    with running_stack(tmp_path, engine=HashEngine(step_s=0.1)) as stack:
        _, body = seal_chunked(
            stack, inner_request(stack, chat_body(stream=True, max_tokens=200, ignore_eos=True))
        )
        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        with stack.client.stream("POST", "/ohttp", content=body, headers=headers) as answer:
            pieces = answer.iter_raw()  # one that is let go closes its connection
            next(pieces)
            assert stack.worker_stats()["open"] == 1
        wait_until(lambda: stack.worker_stats()["open"] == 0)


def test_a_worker_that_is_cut_off_leaves_no_whole_answer(tmp_path: Path) -> None:
    with running_stack(tmp_path, engine=HashEngine(step_s=0.1)) as stack:
        sealed, body = seal_chunked(
            stack, inner_request(stack, chat_body(stream=True, max_tokens=200, ignore_eos=True))
        )
        opener, parser, content = sealed.response_opener(), bhttp.ResponseParser(), b""
        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        with stack.client.stream("POST", "/ohttp", content=body, headers=headers) as answer:
            for data in answer.iter_raw():
                for chunk in opener.feed(data):
                    content += b"".join(parser.feed(chunk))
                if b"delta" in content:
                    stack.worker.cut()
        assert b"upstream_truncated" in content
        assert b"[DONE]" not in content


# --- inside the seal -----------------------------------------------------------------------


def test_a_stranger_is_refused_inside(stack: Stack) -> None:
    response = ask_chunked(stack, inner_request(stack, key="sk-starshade-nobody"))
    assert code_of(response) == (401, "invalid_api_key")
    assert dict(response.fields)["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"body": {"model": "x"}}, (400, "missing_required_parameter")),
        ({"path": "/v1/nothing"}, (404, "unsupported_endpoint")),
        ({"path": "/nothing?a=b"}, (404, "not_found")),
        ({"path": "*"}, (404, "not_found")),
        ({"method": "PUT"}, (405, "method_not_allowed")),
        (
            {"body": chat_body(messages=[{"role": "user", "content": "x" * 20000}])},
            (413, "body_too_large"),
        ),
    ],
    ids=["parameter", "endpoint", "path", "asterisk", "method", "size"],
)
def test_errors_are_inside(
    stack: Stack, options: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code_of(ask_chunked(stack, inner_request(stack, **options))) == expected


@pytest.mark.parametrize("message", [b"", b"\x05nonsense", b"\x00\x07CONNECT\x05https\x00\x01/"])
def test_what_is_no_request_is_said_inside(stack: Stack, message: bytes) -> None:
    sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
    answer = post(stack, sealed.seal_message(message))
    assert answer.status_code == 200
    response = bhttp.parse_response(sealed.response_opener().open_message(answer.content))
    assert code_of(response) == (400, "malformed_inner")


def test_too_large_a_head_is_said_inside(stack: Stack) -> None:
    response = ask_chunked(stack, inner_request(stack, fields=(("a", "b" * 70_000),)))
    assert code_of(response) == (413, "body_too_large")


def test_no_sealed_request_in_a_sealed_request(stack: Stack) -> None:
    _, innermost = seal_chunked(stack, inner_request(stack))
    fields = (("content-type", CHUNKED_REQUEST_TYPE),)
    request = bhttp.Request(
        method="POST", authority="gateway", path="/ohttp", fields=fields, content=innermost
    )
    assert code_of(ask_chunked(stack, request)) == (415, "unsupported_media_type")
    request = inner_request(stack, fields=(("ehbp-encapsulated-key", "ab" * 32),))
    assert code_of(ask_chunked(stack, request)) == (400, "decrypt_failed")


# --- outside the seal ----------------------------------------------------------------------


def refused(stack: Stack, body: bytes, media_type: str = CHUNKED_REQUEST_TYPE) -> tuple[int, str]:
    answer = post(stack, body, media_type)
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_bodies_that_do_not_open_are_told_apart_by_nothing(stack: Stack) -> None:
    _, body = seal_chunked(stack, inner_request(stack))
    bad = [b"", body[:5], body[:20], body[:-1], body[:-40], body[:-1] + bytes([body[-1] ^ 1])]
    answers = [post(stack, each) for each in bad]
    answers += [post(stack, each, PLAIN_REQUEST_TYPE) for each in (b"", body[:20], body)]
    texts = {answer.text for answer in answers}
    assert {answer.status_code for answer in answers} == {400}
    assert len(texts) == 1
    assert json.loads(texts.pop())["code"] == "decrypt_failed"


def test_an_unknown_key(stack: Stack) -> None:
    known = {config.key_id for config in key_list(stack)}
    for key_id, kem_id in ((min(set(range(256)) - known), 0x20), (min(known), KEM_XWING)):
        other = ServerKey.generate(key_id, kem_id=kem_id).config
        if other.kem_id == next((c.kem_id for c in key_list(stack) if c.key_id == key_id), None):
            continue
        sealed = ClientRequest(other, rng=os.urandom)
        answer = post(stack, sealed.seal_message(b"x"))
        assert (answer.status_code, answer.json()["code"]) == (400, "key_config_error")
        assert answer.json()["type"] == "https://iana.org/assignments/http-problem-types#ohttp-key"


@pytest.mark.parametrize("dates", [(-310.0,), (310.0,), (0.0, 0.0), ()], ids=str)
def test_a_date_that_is_not_current(stack: Stack, dates: tuple[float, ...]) -> None:
    fields = tuple(field for offset_s in dates for field in date(offset_s)) or (("date", "now"),)
    _, body = seal_chunked(stack, inner_request(stack, fields=fields))
    answer = post(stack, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "date_outside_window")
    assert answer.json()["type"] == "https://iana.org/assignments/http-problem-types#date"
    assert len(answer.headers.get_list("date")) == 1  # by which the client sets its clock


@pytest.mark.parametrize("is_dated", [False, True])
def test_a_replay(stack: Stack, is_dated: bool) -> None:
    fields = date() if is_dated else ()
    _, body = seal_chunked(stack, inner_request(stack, fields=fields))
    assert post(stack, body).status_code == 200
    assert refused(stack, body) == (409, "replay_detected")


@pytest.mark.parametrize("is_dated", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"key": "sk-starshade-nobody"},
        {"method": "GET", "path": "/healthz"},
        {"method": "GET", "path": "/nothing"},
        {"method": "PUT"},
        {"body": chat_body(messages=[{"role": "user", "content": "x" * 20000}])},
    ],
    ids=["key", "open", "path", "method", "size"],
)
def test_strangers_do_not_fill_the_memory_of_replays(
    stack: Stack, options: dict[str, Any], is_dated: bool
) -> None:
    fields = date() if is_dated else ()
    _, body = seal_chunked(stack, inner_request(stack, fields=fields, **options))
    assert post(stack, body).status_code == 200
    stack.gateway.settle()
    assert post(stack, body).status_code == 200  # it ran nothing, and runs nothing again


def test_an_overloaded_gateway_remembers_no_strangers(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.auth.MAX_STRANGERS", 0)
    request = inner_request(stack, key="sk-starshade-nobody")
    assert code_of(ask_chunked(stack, request)) == (503, "overloaded")
    _, body = seal_chunked(stack, request)
    assert post(stack, body).status_code == 200
    stack.gateway.settle()
    assert post(stack, body).status_code == 200


def test_what_a_known_client_sent_is_remembered_whatever_it_was_answered(stack: Stack) -> None:
    _, body = seal_chunked(stack, inner_request(stack, {"model": "x"}))
    assert post(stack, body).status_code == 200
    assert refused(stack, body) == (409, "replay_detected")


def test_other_media_types(stack: Stack) -> None:
    assert refused(stack, b"{}", "application/json") == (415, "unsupported_media_type")
    _, body = seal_chunked(stack, inner_request(stack))
    answer = post(stack, body, CHUNKED_REQUEST_TYPE.upper() + "; a=b", "/.well-known/ohttp-gateway")
    assert answer.status_code == 200


def test_too_much_outside(stack: Stack) -> None:
    sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
    body = sealed.seal_message(bytes(400_000))
    assert refused(stack, body) == (413, "body_too_large")


# --- sizes ---------------------------------------------------------------------------------


def test_whole_answers_have_few_lengths(stack: Stack) -> None:
    lengths = set()
    for max_tokens in range(1, 9):
        body = chat_body(max_tokens=max_tokens, ignore_eos=True)
        sealed, wire = seal_chunked(stack, inner_request(stack, body))
        opener = sealed.response_opener()
        message = opener.open_message(post(stack, wire).content)
        assert len(message) == padded_length(len(message))
        lengths.add(len(message))
    assert len(lengths) <= 2


def test_chunks_of_a_stream_have_few_lengths(stack: Stack) -> None:
    sealed, wire = seal_chunked(stack, inner_request(stack, chat_body(stream=True)))
    opener, parser = sealed.response_opener(), bhttp.ResponseParser()
    pieces = [
        piece for chunk in opener.feed(post(stack, wire).content) for piece in parser.feed(chunk)
    ]
    assert len(pieces) > 2
    assert {len(piece) % 256 for piece in pieces} == {0}


def test_a_cut_answer_does_not_open_as_whole(stack: Stack) -> None:
    sealed, wire = seal_chunked(stack, inner_request(stack))
    answer = post(stack, wire).content
    with pytest.raises(DecryptFailed) as caught:
        sealed.response_opener().open_message(answer[:-17])
    assert caught.value.detail == "truncated"


def test_a_beat_for_every_stream_of_a_gateway(tmp_path: Path) -> None:
    """Sealed and plain; the receipt is over what the app said, not over the filler."""
    with running_stack(tmp_path, gateway__privacy__fixed_cadence=True) as stack:
        sealed = ask_chunked(stack, inner_request(stack, chat_body(stream=True)))
        plain = stack.chat(stream=True)
        for content, fields in (
            (sealed.content, dict(sealed.fields)),
            (plain.content, dict(plain.headers)),
        ):
            assert len(content) % 256 == 0
            said = [e for e in content.split(b"\n\n") if e.startswith(b"data:")]
            assert said[-1] == b"data: [DONE]"
            receipt = stack.client.get(f"/v1/receipts/{fields['starshade-receipt']}").json()
            digest = response_digest(content, is_streamed=True)
            assert receipt["receipt"]["response_sha256"] == digest


def test_bodies_that_are_not_opened_yet_are_bounded_together(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        doors = stack.gateway.app.services.doors
        unopened = doors.unopened
        unopened._max_bytes = 100_000
        _, body = seal_chunked(stack, inner_request(stack))
        is_held, may_end = threading.Event(), threading.Event()
        announced = (0x8000_0000 | 100_000).to_bytes(4, "big")  # a chunk that never comes whole

        def slow() -> Iterator[bytes]:
            yield body[:39] + announced + bytes(90_000)
            is_held.set()
            assert may_end.wait(PATIENCE_S)

        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        holding = threading.Thread(
            target=lambda: stack.client.post("/ohttp", content=slow(), headers=headers)
        )
        holding.start()
        assert is_held.wait(PATIENCE_S)
        wait_until(lambda: unopened._num_bytes >= 90_000)
        large = ClientRequest(key_list(stack)[0], rng=os.urandom).seal_message(bytes(20_000))
        over = post(stack, large)
        assert (over.status_code, over.json()["code"]) == (503, "overloaded")
        assert stack.chat().status_code == 200  # who is known is not held up
        may_end.set()
        holding.join()
        wait_until(lambda: unopened._num_bytes == 0)
        assert post(stack, body).status_code == 200
