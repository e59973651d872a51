"""Do requests for embeddings reach the worker, and say honestly what came of them?"""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import openai
import pytest

from gateway.calls import MALFORMED
from gateway.embedding_call import EmbeddingReader, embedding_call
from gateway.facts import RequestFacts
from gateway.problems import GatewayError
from gateway.schemas.embeddings import parse_embedding_request
from gateway.worker.embeddings import MAX_TOKENS, embed
from gateway.worker.inner import InnerRequest
from gateway.worker.job import ServedModel
from gateway.worker.wiring import load_model_engine
from runtime.tokenizer import Tokenizer
from telemetry.timeline import RequestTimeline
from tests.gateway.support import MODEL, HashEngine, Stack, running_stack, wait_until
from tests.support.tiny_model import (
    EOS_TOKEN_ID,
    HIDDEN,
    gguf_bytes,
    tiny_metadata,
    tiny_tensors,
)


class EmbeddingEngine(HashEngine):
    """The model file that the configuration names."""

    load = staticmethod(load_model_engine)  # type: ignore[assignment]


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("embedding")
    model = folder / "tiny.gguf"
    metadata = tiny_metadata() | {"llama.pooling_type": 3, "tokenizer.ggml.add_eos_token": True}
    model.write_bytes(gguf_bytes(metadata, tiny_tensors(seed=3)))
    with running_stack(
        folder,
        engine=EmbeddingEngine(),
        wait=False,  # torch is loaded first, and takes what it takes
        worker__model=str(model),
        worker__threads=1,
        engine__kv_cache_bytes=1 << 20,
    ) as stack:
        wait_until(lambda: stack.client.get("/readyz").status_code == 200, timeout_s=60)
        yield stack


def test_texts_and_token_ids_have_vectors(embedding: Stack) -> None:
    client = embedding.openai
    texts = client.embeddings.create(model="tiny", input=["the user", "on", "the user"])
    assert [item.index for item in texts.data] == [0, 1, 2]
    first, other, again = (item.embedding for item in texts.data)
    assert (len(first), len(texts.data)) == (HIDDEN, 3)
    assert first == again != other
    assert sum(item * item for item in first) == pytest.approx(1, abs=1e-5)
    token_ids = [*Tokenizer(tiny_metadata()).encode("the user", special=False), EOS_TOKEN_ID]
    ids = client.embeddings.create(
        model="tiny", input=token_ids, encoding_format="float", dimensions=HIDDEN
    )
    assert ids.data[0].embedding == pytest.approx(first, abs=1e-6)
    assert ids.usage.prompt_tokens == len(token_ids)
    wait_until(lambda: len(embedding.spans("embeddings tiny")) >= 2)


def test_such_a_model_still_writes(embedding: Stack) -> None:
    answer = embedding.openai.completions.create(model="tiny", prompt="the", max_tokens=2)
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 2


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"input": "x" * 3000}, "context_length_exceeded", "input"),
        ({"input": [5000]}, "invalid_value", "input"),
        ({"input": "x", "dimensions": 8}, "invalid_value", "dimensions"),
        ({"input": ["x" * 400] * 400}, "invalid_value", "input"),
    ],
    ids=["too-long", "unknown-id", "dimensions", "too-much"],
)
def test_what_cannot_be_embedded(
    embedding: Stack, members: dict[str, Any], code: str, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        embedding.openai.embeddings.create(model="tiny", **members)
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("embeddings")) as stack:
        yield stack


def test_a_model_that_writes_says_that_it_cannot(stack: Stack) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        stack.openai.embeddings.create(model=MODEL, input="hello")
    assert (caught.value.code, caught.value.param) == ("model_not_capable", "model")
    wait_until(lambda: bool(stack.spans(f"embeddings {MODEL}")))
    with pytest.raises(openai.NotFoundError):
        stack.openai.embeddings.create(model="other", input="hello")


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"input": []}, "invalid_value", "input"),
        ({"input": ["a"] * 2049}, "invalid_value", "input"),
        ({"dimensions": 0}, "invalid_value", "dimensions"),
        ({"encoding_format": "hex"}, "invalid_value", "encoding_format"),
        ({"stream": True}, "unsupported_parameter", "stream"),
    ],
    ids=str,
)
def test_refusals(members: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(GatewayError) as caught:
        parse_embedding_request(json.dumps({"model": "m", "input": "x", **members}).encode())
    assert (caught.value.code, caught.value.param) == (code, param)


def test_what_is_passed_on_and_read() -> None:
    call = embedding_call({"model": "m", "input": [[1, 2]], "user": "u", "dimensions": 3})
    assert json.loads(call.body) == {"model": "m", "input": [[1, 2]], "dimensions": 3}
    timeline = RequestTimeline(arrived_ns=1, wall_anchor_ns=1)
    facts = RequestFacts(request_id="r", timeline=timeline, route="/v1/embeddings")
    answer = {"data": [], "usage": {"prompt_tokens": 2, "total_tokens": 2}}
    EmbeddingReader().read_whole(json.dumps(answer).encode(), facts)
    assert (facts.has_usage, timeline.prompt_tokens, timeline.output_tokens) == (True, 2, 0)
    for body in (b"{}", b'{"data": []', b'{"usage": {}}', b'{"x": {"usage": {}}}'):
        with pytest.raises(MALFORMED):
            EmbeddingReader().read_whole(body, facts)


def test_numbers_are_not_decoded_for_the_count_behind_them() -> None:
    timeline = RequestTimeline(arrived_ns=1, wall_anchor_ns=1)
    facts = RequestFacts(request_id="r", timeline=timeline, route="/v1/embeddings")
    body = b'{"data": [these are not read], "usage": {"prompt_tokens": 2}, "object": "list"}'
    EmbeddingReader().read_whole(body, facts)
    assert timeline.prompt_tokens == 2


@pytest.mark.parametrize(("encoding", "most"), [("float", 653), ("base64", 2048)])
async def test_vectors_that_no_answer_holds_are_not_made(encoding: str, most: int) -> None:
    embedder = SimpleNamespace(num_dimensions=1024)
    texts, too_many = list[int](), [0] * MAX_TOKENS

    def tokenize(_text: str) -> list[int]:
        texts.append(1)
        return too_many  # so that it ends there

    model = SimpleNamespace(
        name=MODEL,
        embedder=embedder,
        require_name=lambda _name: None,
        tokenizer=SimpleNamespace(encode_document=tokenize),
    )

    async def num_encoded(num_texts: int) -> int:
        body = {"model": MODEL, "input": ["x"] * num_texts, "encoding_format": encoding}
        request = InnerRequest(
            method="POST",
            path="/v1/embeddings",
            body=json.dumps(body).encode(),
            request_id="r",
            cache_salt=b"",
            traceparent=None,
        )
        texts.clear()
        with pytest.raises(GatewayError) as caught:
            await embed(cast(ServedModel, model), request)
        assert (caught.value.code, caught.value.param) == ("invalid_value", "input")
        return len(texts)

    assert await num_encoded(most) == most
    assert await num_encoded(most + 1) == 0
