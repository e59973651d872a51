"""Does a worker behind a gateway that cannot read sign what it answered and what it refused?"""

import hashlib
import json
import os

import pytest

from attestation.channel import ClientRequest, bhttp
from attestation.keyset import parse_keyset
from attestation.model import parse_bundle
from attestation.receipt import Receipt, SignedReceipt, response_digest
from attestation.sampling import sampling_digest
from tests.gateway.doors.clients import key_list
from tests.gateway.doors.passing import NONCE, ask, inner, post
from tests.gateway.support import Stack


def receipt(stack: Stack, receipt_id: str) -> bhttp.Response:
    request = bhttp.Request(method="GET", path=f"/v1/receipts/{receipt_id}", fields=())
    sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
    answer = post(stack, sealed.seal_message(bhttp.serialize_request(request)))
    return bhttp.parse_response(sealed.response_opener().open_message(answer.content))


def verified(stack: Stack, receipt_id: str) -> Receipt:
    """Under the keys of the worker's own Evidence."""
    params = {"nonce": NONCE, "node": "worker-0"}
    bundle = stack.client.get("/v1/attestation", params=params).content
    found = receipt(stack, receipt_id)
    assert found.status == 200, found.content
    return SignedReceipt.parse(found.content).verify(
        parse_keyset(parse_bundle(bundle).keyset).receipt
    )


@pytest.mark.parametrize("stream", [False, True])
def test_the_worker_signs_a_receipt(blind: Stack, stream: bool) -> None:
    response = ask(blind, stream=stream)
    signed = verified(blind, dict(response.fields)["starshade-receipt"])
    assert (signed.outcome, signed.code, signed.is_streamed) == ("complete", None, stream)
    body = inner(blind, stream=stream).content
    assert signed.request_sha256 == hashlib.sha256(body).hexdigest()
    assert signed.response_sha256 == response_digest(response.content, is_streamed=stream)
    assert signed.sampling_sha256 == sampling_digest(json.loads(body))
    assert (signed.worker, signed.model, signed.weights_sha256) == ("worker-0", "hash", "ab" * 32)


def test_the_worker_signs_what_it_refused(blind: Stack) -> None:
    response = ask(blind, temperature=9)
    signed = verified(blind, dict(response.fields)["starshade-receipt"])
    assert (signed.outcome, signed.status, signed.code) == ("refused", 400, "invalid_value")
    assert signed.response_sha256 == hashlib.sha256(response.content).hexdigest()


def test_a_receipt_that_nobody_knows(blind: Stack) -> None:
    found = receipt(blind, "0" * 32)
    assert (found.status, json.loads(found.content)["error"]["code"]) == (404, "receipt_not_found")
