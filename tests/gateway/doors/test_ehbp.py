"""Is a request whose body alone is sealed answered like a plain one, and refused as EHBP says?"""

import json
import os
from typing import Any

import pytest

from attestation.channel import ServerKey, ehbp
from tests.gateway.doors.clients import ask_ehbp, ehbp_key, post_ehbp
from tests.gateway.support import Stack, chat_body


def sealed_chat(stack: Stack, **members: Any) -> tuple[ehbp.EhbpClientRequest, bytes]:
    sealed = ehbp.EhbpClientRequest(ehbp_key(stack), rng=os.urandom)
    return sealed, sealed.seal_chunk(json.dumps(chat_body(**members)).encode())


def test_the_answer_is_that_of_a_plain_request(stack: Stack) -> None:
    answer = ask_ehbp(stack)
    assert answer.outer.status_code == 200
    assert answer.outer.headers["content-type"] == "application/json"
    assert "content-length" not in answer.outer.headers
    assert json.loads(answer.content)["choices"] == stack.chat().json()["choices"]


def test_a_stream(stack: Stack) -> None:
    answer = ask_ehbp(stack, chat_body(stream=True))
    events = [e for e in answer.content.split(b"\n\n") if e.startswith(b"data:")]
    assert events[-1] == b"data: [DONE]"
    assert b"data:" not in answer.outer.content


def test_the_receipt_is_over_what_the_client_wrote(stack: Stack) -> None:
    import hashlib

    body = json.dumps(chat_body()).encode()
    answer = ask_ehbp(stack)
    receipt_id = answer.outer.headers["starshade-receipt"]
    receipt = stack.client.get(f"/v1/receipts/{receipt_id}").text
    assert hashlib.sha256(body).hexdigest() in receipt
    assert hashlib.sha256(answer.content).hexdigest() in receipt


def test_errors_of_the_app_are_sealed(stack: Stack) -> None:
    for options, expected in (
        ({"authorization": "Bearer nobody"}, (401, "invalid_api_key")),
        ({"body": {"model": "hash"}}, (400, "missing_required_parameter")),
    ):
        answer = ask_ehbp(stack, **options)
        code = json.loads(answer.content)["error"]["code"]
        assert (answer.outer.status_code, code) == expected


def test_without_a_body_nothing_is_sealed(stack: Stack) -> None:
    answer = stack.client.get("/v1/models")
    assert answer.json()["data"]
    assert "ehbp-response-nonce" not in answer.headers


def test_a_key_that_is_gone(stack: Stack) -> None:
    sealed = ehbp.EhbpClientRequest(ServerKey.generate(1).config, rng=os.urandom)
    answer = post_ehbp(stack, sealed.seal_chunk(b"{}"), sealed.enc)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:ietf:params:ehbp:error:key-config"
    assert (problem["status"], problem["code"]) == (422, "key_config_error")


def test_a_replay(stack: Stack) -> None:
    sealed, body = sealed_chat(stack)
    assert post_ehbp(stack, body, sealed.enc).status_code == 200
    again = post_ehbp(stack, body, sealed.enc)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "replay_detected")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/nothing"])
def test_strangers_do_not_fill_the_memory_of_replays(stack: Stack, path: str) -> None:
    sealed, body = sealed_chat(stack)
    for _ in range(2):
        answer = post_ehbp(stack, body, sealed.enc, path=path, authorization="Bearer nobody")
        assert answer.status_code in {401, 404}
        stack.gateway.settle()


def test_bodies_that_do_not_open_are_told_apart_by_nothing(stack: Stack) -> None:
    sealed, body = sealed_chat(stack)
    second = sealed.seal_chunk(b" ")
    damaged = second[:-1] + bytes([second[-1] ^ 1])
    answers = [
        post_ehbp(stack, wire, sealed.enc) for wire in (b"", body[:3], body[:-1], body + damaged)
    ]
    answers.append(post_ehbp(stack, body, sealed.enc[:31]))
    assert {answer.status_code for answer in answers} == {400}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["error"]["code"] == "decrypt_failed"


def test_two_keys_in_one_request(stack: Stack) -> None:
    sealed, body = sealed_chat(stack)
    headers = [("ehbp-encapsulated-key", sealed.enc.hex())] * 2
    answer = stack.client.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.json()["error"]["code"] == "decrypt_failed"


def test_too_much(stack: Stack) -> None:
    sealed = ehbp.EhbpClientRequest(ehbp_key(stack), rng=os.urandom)
    answer = post_ehbp(stack, sealed.seal_chunk(bytes(400_000)), sealed.enc)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
