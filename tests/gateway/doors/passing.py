"""How does a test ask for something through a gateway that cannot read it?"""

import os

import httpx

from attestation.channel import CHUNKED_REQUEST_TYPE, ClientRequest, KeyConfig, bhttp
from tests.gateway.doors.clients import CHAT, inner_request, key_list
from tests.gateway.support import Stack, chat_body

NONCE = "ab" * 32


def post(
    stack: Stack, body: bytes, media_type: str = CHUNKED_REQUEST_TYPE, **fields: str
) -> httpx.Response:
    return stack.client.post("/ohttp", content=body, headers={"content-type": media_type, **fields})


def inner(stack: Stack, **members: object) -> bhttp.Request:
    """Without a credential: the worker knows none."""
    request = inner_request(stack, chat_body(**members))
    fields = (("content-type", "application/json"),)
    return bhttp.Request(method="POST", path=CHAT, fields=fields, content=request.content)


def ask(stack: Stack, config: KeyConfig | None = None, **members: object) -> bhttp.Response:
    sealed = ClientRequest(config or key_list(stack)[0], rng=os.urandom)
    answer = post(stack, sealed.seal_message(bhttp.serialize_request(inner(stack, **members))))
    assert answer.status_code == 200, answer.text
    assert answer.headers["incremental"] == "?1"
    return bhttp.parse_response(sealed.response_opener().open_message(answer.content))


def refused(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    return answer.status_code, body.get("error", body)["code"]
