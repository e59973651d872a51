"""What does the worker answer to a request for embeddings?  Vectors, where its model makes them.

https://platform.openai.com/docs/api-reference/embeddings
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gateway.calls import MAX_ANSWER_BYTES
from gateway.problems import GatewayError
from gateway.schemas.embeddings import EmbeddingRequest, parse_embedding_request
from gateway.worker.inner import InnerRequest, InnerResponse, json_response
from gateway.worker.job import ServedModel
from runtime.embedding import TextEmbedder

MAX_TOKENS: Final = 1 << 17  # of one request; it holds up those behind it text by text
_ENTRY_BYTES: Final = 64  # of JSON around a vector
_FLOAT_BYTES: Final = 25  # of a component as JSON, at most
Json = dict[str, Any]


async def embed(model: ServedModel, request: InnerRequest) -> InnerResponse:
    """One text after another, so that a request that ends early costs one more text at most.

    Raises: GatewayError, RequestRejected.
    """
    asked = parse_embedding_request(request.body)
    model.require_name(asked.model)
    embedder = model.embedder
    if embedder is None:
        raise GatewayError("model_not_capable", "This model makes no embeddings.", param="model")
    _require_dimensions(asked, embedder)
    _require_fitting(asked, embedder)
    texts = await asyncio.to_thread(_encode_all, model, asked)
    num_tokens = sum(map(len, texts))
    if num_tokens > MAX_TOKENS:
        raise GatewayError(
            "invalid_value", f"The input has more than {MAX_TOKENS} tokens.", param="input"
        )
    vectors = [await asyncio.to_thread(embedder.embed, text) for text in texts]
    data = [_entry(index, vector, asked) for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return json_response(200, {"object": "list", "data": data, "model": model.name, "usage": usage})


def _encode_all(model: ServedModel, asked: EmbeddingRequest) -> list[Sequence[int]]:
    return [
        model.tokenizer.encode_document(text) if isinstance(text, str) else text
        for text in asked.inputs
    ]


def _require_dimensions(asked: EmbeddingRequest, embedder: TextEmbedder) -> None:
    """A vector that was cut off is only a good one where the model was trained for it."""
    if asked.dimensions not in (None, embedder.num_dimensions):
        raise GatewayError(
            "invalid_value",
            f"This model's embeddings have {embedder.num_dimensions} dimensions.",
            param="dimensions",
        )


def _require_fitting(asked: EmbeddingRequest, embedder: TextEmbedder) -> None:
    value_bytes = 16 / 3 if asked.encoding_format == "base64" else _FLOAT_BYTES
    most = MAX_ANSWER_BYTES // int(_ENTRY_BYTES + embedder.num_dimensions * value_bytes)
    if len(asked.inputs) > most:
        raise GatewayError(
            "invalid_value",
            f"One answer holds the vectors of {most} texts in this encoding_format.",
            param="input",
        )


def _entry(index: int, vector: "np.typing.NDArray[np.float32]", asked: EmbeddingRequest) -> Json:
    told: str | list[float] = vector.tolist()
    if asked.encoding_format == "base64":
        told = base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return {"object": "embedding", "index": index, "embedding": told}
