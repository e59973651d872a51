"""Does the audit log know what a sealed request was refused for, and the sender not?"""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from attestation.channel import PLAIN_REQUEST_TYPE, ServerKey, bhttp, ehbp
from gateway.audit_cli import audit
from tests.gateway.doors.clients import (
    ask_chunked,
    ehbp_key,
    inner_request,
    post,
    post_ehbp,
    seal_chunked,
)
from tests.gateway.support import Stack


def refusals(stack: Stack) -> list[dict[str, Any]]:
    stack.settle()
    arguments = ["show", "--json", "--last", "10000", "--state-dir", str(stack.config.state_dir)]
    output = CliRunner().invoke(audit, arguments).output
    events = [json.loads(line) for line in output.splitlines()]
    return [event["fields"] for event in events if event["kind"] == "request_refused"]


def flipped(stack: Stack) -> Any:
    body = bytearray(seal_chunked(stack, inner_request(stack))[1])
    body[-1] ^= 1
    return post(stack, bytes(body))


def cut(stack: Stack) -> Any:
    return post(stack, seal_chunked(stack, inner_request(stack))[1][:20])


def replayed(stack: Stack) -> Any:
    body = seal_chunked(stack, inner_request(stack))[1]
    post(stack, body)
    return post(stack, body)


def unknown_key(stack: Stack) -> Any:
    return post(stack, seal_chunked(stack, inner_request(stack), ServerKey.generate(7).config)[1])


def unknown_ehbp_key(stack: Stack) -> Any:
    sealed = ehbp.EhbpClientRequest(ServerKey.generate(1).config, rng=os.urandom)
    return post_ehbp(stack, sealed.seal_chunk(b"{}"), sealed.enc)


def cut_ehbp(stack: Stack) -> Any:
    sealed = ehbp.EhbpClientRequest(ehbp_key(stack), rng=os.urandom)
    return post_ehbp(stack, sealed.seal_chunk(b"{}")[:-1], sealed.enc)


def not_sealed(stack: Stack) -> Any:
    return post(stack, b"{}", "application/json")


def junk(stack: Stack) -> Any:
    return post(stack, b"", PLAIN_REQUEST_TYPE)


REFUSED: dict[Callable[[Stack], Any], tuple[str, str | None, str]] = {
    flipped: ("decrypt_failed", "decrypt", "/ohttp"),
    cut: ("decrypt_failed", "malformed", "/ohttp"),
    junk: ("decrypt_failed", "malformed", "/ohttp"),
    replayed: ("replay_detected", None, "/ohttp"),
    unknown_key: ("key_config_error", "key_config_error", "/ohttp"),
    unknown_ehbp_key: ("key_config_error", "key_config_error", "/v1/chat/completions"),
    cut_ehbp: ("decrypt_failed", "truncated", "/v1/chat/completions"),
    not_sealed: ("unsupported_media_type", None, "/ohttp"),
}


@pytest.mark.parametrize("send", REFUSED, ids=lambda send: send.__name__)
def test_the_precise_class_is_in_the_log_alone(stack: Stack, send: Callable[[Stack], Any]) -> None:
    code, detail, endpoint = REFUSED[send]
    before = len(refusals(stack))
    answer = send(stack)
    assert answer.is_client_error
    if code == "decrypt_failed":
        assert "detail_code" not in answer.text
        assert "The encapsulated message could not be opened." in answer.text
    (noted,) = refusals(stack)[before:]
    assert (noted["code"], noted.get("detail"), noted["endpoint"]) == (code, detail, endpoint)


def test_what_is_refused_inside_is_noted_once(stack: Stack) -> None:
    before = len(refusals(stack))
    assert ask_chunked(stack, inner_request(stack, {"model": "hash"})).status == 400
    assert ask_chunked(stack, inner_request(stack, key="sk-starshade-x")).status == 401
    request = bhttp.Request(method="GET", authority="g", path="/secret", fields=(), content=b"")
    assert ask_chunked(stack, request).status == 404
    noted = refusals(stack)[before:]
    assert [(n["code"], n["endpoint"], "receipt" in n) for n in noted] == [
        ("missing_required_parameter", "/v1/chat/completions", True),
        ("invalid_api_key", "/v1/chat/completions", False),
        ("not_found", "other", False),
    ]
