"""What is a request for embeddings to the relay?  Never a stream, and nothing is generated."""

import json
from collections.abc import Mapping
from typing import Any, Final

from gateway import sse
from gateway.calls import Call, EventUse, take_usage
from gateway.facts import RequestFacts
from gateway.problems import GatewayError, openai_body
from gateway.schemas.embeddings import embedding_inner_body, validate_embedding_request
from telemetry import semconv

EMBEDDINGS_PATH: Final = "/v1/embeddings"


def embedding_call(asked: Mapping[str, Any]) -> Call:
    """Of a parsed body. Raises: GatewayError as `parse_embedding_request`."""
    request = validate_embedding_request(asked)
    return Call(
        path=EMBEDDINGS_PATH,
        operation=semconv.OPERATION_EMBEDDINGS,
        model=request.model,
        body=embedding_inner_body(request),
        is_streamed=False,
        reader=EmbeddingReader(),
        num_choices=0,
    )


class EmbeddingReader:
    """`gateway.calls.AnswerReader`."""

    def read_whole(self, body: bytes, facts: RequestFacts) -> None:
        """Of megabytes of numbers only what is behind them: usage comes last."""
        usage = json.loads(b"{" + body[body.rindex(b'"usage"') :])["usage"]
        take_usage(facts, prompt=usage["prompt_tokens"], cached=0, output=0)

    def read_event(self, data: bytes, facts: RequestFacts, *, now_ns: int) -> EventUse:
        raise ValueError("embeddings have no events")

    def error_event(self, code: str, message: str, param: str | None) -> bytes:
        return sse.encode_json(openai_body(GatewayError(code, message, param=param)))
