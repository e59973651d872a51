"""The checked-in OHTTP vectors: still what the generator makes, still what the channel does."""

import json
from typing import Any

import pytest

from attestation.channel import (
    DecryptFailed,
    KeyConfigError,
    PrivateKey,
    ServerKey,
    ServerRequest,
    bhttp,
)
from tests.vectors.ohttp import generate

FILES = sorted(generate.FOLDER.glob("*.json"))


def load(kind: str) -> list[Any]:
    documents = {path.stem: json.loads(path.read_text()) for path in FILES}
    return [
        pytest.param(document, id=name)
        for name, document in documents.items()
        if kind in document["input"]
    ]


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}
    assert made == {path.name: path.read_text() for path in FILES}


@pytest.mark.parametrize("vector", load("framing"))
def test_exchange(vector: dict[str, Any]) -> None:
    assert generate.exchange(vector["input"]) == vector["expect"]


@pytest.mark.parametrize("vector", load("body"))
def test_request(vector: dict[str, Any]) -> None:
    inputs, expect = vector["input"], vector["expect"]
    key = PrivateKey.from_bytes(bytes.fromhex(inputs["server_secret"]))
    keys = {inputs["key_id"]: ServerKey.from_private_key(inputs["key_id"], key)}
    server, body = ServerRequest(keys), bytes.fromhex(inputs["body"])
    if expect["code"] is None:
        assert bhttp.parse_request(server.open_message(body)) == generate.REQUEST
        return
    with pytest.raises((DecryptFailed, KeyConfigError)) as caught:
        server.open_message(body)
    assert caught.value.code == expect["code"]
    assert getattr(caught.value, "detail", None) == expect["detail"]
