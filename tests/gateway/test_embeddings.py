"""Do requests for embeddings reach the worker, and say honestly what came of them?"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from gateway.embedding_call import EmbeddingReader, embedding_call
from gateway.observe import ChatFacts
from gateway.problems import GatewayError
from gateway.schemas.embeddings import parse_embedding_request
from telemetry.timeline import RequestTimeline
from tests.gateway.support import MODEL, Stack, running_stack, wait_until


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
    call = embedding_call(b'{"model": "m", "input": [[1, 2]], "user": "u", "dimensions": 3}')
    assert json.loads(call.body) == {"model": "m", "input": [[1, 2]], "dimensions": 3}
    timeline = RequestTimeline(arrived_ns=1, wall_anchor_ns=1)
    facts = ChatFacts(request_id="r", timeline=timeline, route="/v1/embeddings")
    answer = {"data": [], "usage": {"prompt_tokens": 2, "total_tokens": 2}}
    EmbeddingReader().read_whole(json.dumps(answer).encode(), facts)
    assert (facts.has_usage, timeline.prompt_tokens, timeline.output_tokens) == (True, 2, 0)
    with pytest.raises(KeyError):
        EmbeddingReader().read_whole(b"{}", facts)
