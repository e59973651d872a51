"""How do clients of the sealed doors ask in tests?  The channel's own client side over HTTP."""

import json
import os
from dataclasses import dataclass
from typing import Any

import httpx

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    PLAIN_REQUEST_TYPE,
    ClientRequest,
    KeyConfig,
    PlainClientRequest,
    bhttp,
    ehbp,
    parse_key_config,
    parse_key_configs,
)
from tests.gateway.support import Stack, chat_body

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class EhbpAnswer:
    """An opened answer; `outer` is as it came."""

    outer: httpx.Response
    content: bytes


def key_list(stack: Stack) -> tuple[KeyConfig, ...]:
    return parse_key_configs(stack.client.get("/.well-known/ohttp-gateway").content)


def inner_request(
    stack: Stack, body: Any = None, *, path: str = CHAT, method: str = "POST", **options: Any
) -> bhttp.Request:
    content = b"" if method == "GET" else json.dumps(body or chat_body()).encode()
    key = options.pop("key", stack.key)
    fields = (("authorization", f"Bearer {key}"), ("content-type", "application/json"))
    extra: tuple[tuple[str, str], ...] = options.pop("fields", ())
    return bhttp.Request(
        method=method, authority="gateway", path=path, fields=fields + extra, content=content
    )


def seal_chunked(
    stack: Stack, request: bhttp.Request, config: KeyConfig | None = None
) -> tuple[ClientRequest, bytes]:
    sealed = ClientRequest(config or key_list(stack)[0], rng=os.urandom)
    return sealed, sealed.seal_message(bhttp.serialize_request(request))


def post(
    stack: Stack, body: bytes, media_type: str = CHUNKED_REQUEST_TYPE, path: str = "/ohttp"
) -> httpx.Response:
    # no credential outside: the one inside counts
    headers = {"content-type": media_type, "authorization": ""}
    return stack.client.post(path, content=body, headers=headers)


def ask_chunked(
    stack: Stack, request: bhttp.Request, config: KeyConfig | None = None
) -> bhttp.Response:
    sealed, body = seal_chunked(stack, request, config)
    answer = post(stack, body)
    assert (answer.status_code, answer.headers["content-type"]) == (
        200,
        "message/ohttp-chunked-res",
    )
    return bhttp.parse_response(sealed.response_opener().open_message(answer.content))


def ask_plain(stack: Stack, request: bhttp.Request) -> bhttp.Response:
    sealed = PlainClientRequest(key_list(stack)[0], rng=os.urandom)
    body = sealed.seal_message(bhttp.serialize_request(request, padding_bytes=100))
    answer = post(stack, body, PLAIN_REQUEST_TYPE)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "message/ohttp-res")
    return bhttp.parse_response(sealed.open_response(answer.content))


def ehbp_key(stack: Stack) -> KeyConfig:
    return parse_key_config(stack.client.get("/.well-known/hpke-keys").content)


def post_ehbp(
    stack: Stack, body: bytes, enc: bytes, *, path: str = CHAT, **headers: str
) -> httpx.Response:
    fields = {
        "content-type": "application/json",
        "ehbp-encapsulated-key": enc.hex(),
        **headers,
    }
    return stack.client.post(path, content=body, headers=fields)


def ask_ehbp(stack: Stack, body: Any = None, **options: Any) -> EhbpAnswer:
    sealed = ehbp.EhbpClientRequest(ehbp_key(stack), rng=os.urandom)
    wire = sealed.seal_chunk(json.dumps(body or chat_body()).encode())
    answer = post_ehbp(stack, wire, sealed.enc, **options)
    opener = sealed.response_opener(ehbp.parse_field(answer.headers["ehbp-response-nonce"]))
    content = b"".join(opener.feed(answer.content))
    opener.finish()
    return EhbpAnswer(outer=answer, content=content)
