"""Has every end of a request that only the worker can read a receipt, and for how long?"""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestation.receipt import Receipt, SignedReceipt
from gateway import sse
from gateway.problems import GatewayError, openai_body
from gateway.worker.inner import InnerRequest, InnerResponse
from gateway.worker.node_receipts import FIELD, KEPT_NS, MAX_KEPT, NodeReceipts

BODY = json.dumps({"model": "m", "temperature": 1}).encode()
FAILED = sse.encode_json(openai_body(GatewayError("generation_failed", "x")))


class ScriptedService:
    """Answers with these pieces; says whether its body was closed."""

    def __init__(self, *pieces: bytes, status: int = 200, media_type: str = sse.MEDIA_TYPE) -> None:
        self.pieces = pieces
        self.status = status
        self.media_type = media_type
        self.is_closed = False
        self.fault: Exception | None = None

    async def respond(self, request: InnerRequest) -> InnerResponse:
        if self.fault is not None:
            raise self.fault
        return InnerResponse(status=self.status, media_type=self.media_type, body=self._body())

    async def _body(self) -> AsyncGenerator[bytes, None]:
        try:
            for piece in self.pieces:
                yield piece
        finally:
            self.is_closed = True


class Node:
    """Receipts at a clock of their own."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.num_made = 0
        self.receipts = NodeReceipts(
            key=Ed25519PrivateKey.from_private_bytes(bytes(32)),
            replica="worker-0",
            policy_sha256="44" * 32,
            utc_now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            monotonic_ns=lambda: self.now_ns,
            new_id=self._new_id,
        )

    def _new_id(self) -> str:
        self.num_made += 1
        return f"{self.num_made:032x}"

    async def respond(self, service: ScriptedService, body: bytes = BODY) -> InnerResponse:
        witnessed = self.receipts.witness(service, weights_sha256="55" * 32)
        return await witnessed.respond(request("POST", "/v1/chat/completions", body))

    def receipt(self, response: InnerResponse) -> Receipt:
        signed = SignedReceipt.parse(self.receipts.find(dict(response.fields)[FIELD]))
        return signed.verify([self.receipts.key])


def request(method: str, path: str, body: bytes = b"") -> InnerRequest:
    return InnerRequest(
        method=method, path=path, body=body, request_id="r", cache_salt=b"", traceparent=None
    )


async def read(response: InnerResponse) -> bytes:
    return b"".join([data async for data in response.body])


@pytest.fixture
def node() -> Node:
    return Node()


async def test_half_a_surrogate_in_a_label_leaves_the_receipt_whole(node: Node) -> None:
    """The parser of requests takes it, where nothing is made of it, so what signs must too."""
    body = BODY.replace(b"}", b', "user": "\\ud800"}')
    response = await node.respond(ScriptedService(b"data: 1\n\n"), body)
    await read(response)
    signed = node.receipt(response)
    assert signed.model == "m"
    assert signed.sampling_sha256 is not None


async def test_an_answer_that_breaks_off_in_an_error_event(node: Node) -> None:
    response = await node.respond(ScriptedService(b"", b"data: 1\n\n", FAILED))
    assert await read(response) == b"data: 1\n\n" + FAILED
    signed = node.receipt(response)
    assert (signed.outcome, signed.code) == ("failed", "generation_failed")


async def test_text_that_looks_like_an_error_is_none(node: Node) -> None:
    response = await node.respond(ScriptedService(b'data: {"a":"{\\"error\\":{"}\n\n', sse.DONE))
    await read(response)
    assert node.receipt(response).outcome == "complete"


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_reader_who_leaves_closes_what_is_behind(node: Node, is_read: bool) -> None:
    service = ScriptedService(b"data: 1\n\n", b"data: 2\n\n")
    response = await node.respond(service)
    if is_read:
        assert await anext(response.body) == b"data: 1\n\n"
    await response.body.aclose()
    assert service.is_closed is is_read  # one that never began has nothing to close
    signed = node.receipt(response)
    assert (signed.outcome, signed.code, signed.bytes_sent) == (
        "cancelled",
        "client_disconnected",
        9 if is_read else 0,
    )


async def test_a_defect_has_a_receipt_too(node: Node) -> None:
    service = ScriptedService()
    service.fault = KeyError("bug")
    response = await node.respond(service, b"no json")
    await read(response)
    signed = node.receipt(response)
    assert (signed.outcome, signed.code, signed.model) == ("refused", "internal_error", None)


async def test_receipts_are_forgotten(node: Node) -> None:
    first = await node.respond(ScriptedService())
    await read(first)
    node.now_ns = KEPT_NS - 1
    assert node.receipt(first).outcome == "complete"
    node.now_ns = KEPT_NS
    with pytest.raises(GatewayError, match="any more"):
        node.receipt(first)
    last = first
    for _ in range(MAX_KEPT + 1):
        last = await node.respond(ScriptedService())
        await read(last)
    assert node.receipt(last).outcome == "complete"
    assert len(node.receipts._kept) == MAX_KEPT


async def test_other_methods_have_none(node: Node) -> None:
    witnessed = node.receipts.witness(ScriptedService(b"{}"), weights_sha256="55" * 32)
    assert (await witnessed.respond(request("GET", "/v1/models"))).fields == ()
    missing = await witnessed.respond(request("GET", "/v1/receipts/x"))
    assert (missing.status, json.loads(await read(missing))["error"]["code"]) == (
        404,
        "receipt_not_found",
    )
