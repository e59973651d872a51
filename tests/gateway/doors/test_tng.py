"""Is a request in TNG's framing answered, and told by status 422 that its key is gone?"""

import base64
import json
import os
import time
from pathlib import Path

import httpx
import pytest

from attestation.channel import ClientRequest, ServerKey, bhttp, parse_key_configs
from gateway.doors.tng import MAX_METADATA_BYTES
from tests.gateway.doors.clients import inner_request, key_list, seal_chunked
from tests.gateway.support import Stack, running_stack

METADATA = bytes.fromhex("1a220a20") + bytes(32)  # a hint that names no key of ours


def tunnel(stack: Stack, body: bytes) -> httpx.Response:
    headers = {"x-tng-ohttp-api": "/tng/tunnel", "content-type": "message/ohttp-chunked-req"}
    return stack.client.post("/", content=body, headers=headers)


def framed(body: bytes, metadata: bytes = METADATA) -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata + body


def test_the_key_configuration(stack: Stack) -> None:
    headers = {"x-tng-ohttp-api": "/tng/key-config"}
    answer = stack.client.post("/", json={"attest_request": {"proposals": []}}, headers=headers)
    body = answer.json()
    assert body["attest_response"] == {"Ok": None}
    config = body["hpke_key_config"]
    listed = parse_key_configs(base64.b64decode(config["encoded_key_config_list"]))
    assert listed == key_list(stack)
    expires_in_s = config["expire_timestamp"] - time.time()  # noqa: TID251 - the server's clock
    assert 150 <= expires_in_s <= 451  # after the rotation, before the key is erased


@pytest.mark.parametrize("metadata", [METADATA, b"", bytes(MAX_METADATA_BYTES)])
def test_an_answer(stack: Stack, metadata: bytes) -> None:
    sealed, body = seal_chunked(stack, inner_request(stack))
    answer = tunnel(stack, framed(body, metadata))
    response = bhttp.parse_response(sealed.response_opener().open_message(answer.content))
    assert json.loads(response.content)["choices"]


def test_fields_that_a_library_adds_are_dropped(stack: Stack) -> None:
    """Published clients seal what httpx wrote for its connection."""
    request = bhttp.serialize_request(inner_request(stack))
    fields = b"\x0aconnection\x0akeep-alive"
    known = bhttp.serialize_request(inner_request(stack, fields=(("x-" + "a" * 8, "b" * 10),)))
    message = known.replace(b"\x0ax-aaaaaaaa\x0abbbbbbbbbb", fields)
    assert message != request
    sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
    answer = tunnel(stack, framed(sealed.seal_message(message)))
    opened = sealed.response_opener().open_message(answer.content)
    assert bhttp.parse_response(opened).status == 200


def test_a_key_that_is_gone(stack: Stack) -> None:
    known = {config.key_id for config in key_list(stack)}
    other = ServerKey.generate(min(set(range(256)) - known)).config
    answer = tunnel(stack, framed(ClientRequest(other, rng=os.urandom).seal_message(b"x")))
    assert (answer.status_code, answer.json()["code"]) == (422, "key_config_error")


@pytest.mark.parametrize("body", [b"", b"\x00", framed(b""), framed(b"x" * 50), b"\xff" * 5000])
def test_what_does_not_open(stack: Stack, body: bytes) -> None:
    answer = tunnel(stack, body)
    assert (answer.status_code, answer.json()["code"]) in {
        (400, "decrypt_failed"),
        (422, "key_config_error"),  # the header of 50 times x names no key
    }


def test_metadata_is_bounded(stack: Stack) -> None:
    _, body = seal_chunked(stack, inner_request(stack))
    answer = tunnel(stack, framed(body, bytes(MAX_METADATA_BYTES + 1)))
    assert (answer.status_code, answer.json()["code"]) == (400, "decrypt_failed")


def test_without_the_field_there_is_nothing(stack: Stack) -> None:
    assert stack.client.post("/").json()["code"] == "not_found"


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with running_stack(tmp_path, gateway__tng=False) as stack:
        _, body = seal_chunked(stack, inner_request(stack))
        assert tunnel(stack, framed(body)).json()["code"] == "not_found"
