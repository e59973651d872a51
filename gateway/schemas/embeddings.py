"""Which embeddings may be asked for?  https://platform.openai.com/docs/api-reference/embeddings"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gateway.schemas.completions import PromptText, PromptTokens, texts_of
from gateway.schemas.wire import ModelName, Wire, compact_json, parse_object, validated

MAX_INPUTS: Final = 2048  # OpenAI's bound
MAX_DIMENSIONS: Final = 1 << 16


class EmbeddingRequest(Wire):
    """POST /v1/embeddings. ``repr`` shows no input."""

    model: ModelName
    input: (
        PromptText
        | Annotated[list[PromptText], Field(min_length=1, max_length=MAX_INPUTS)]
        | PromptTokens
        | Annotated[list[PromptTokens], Field(min_length=1, max_length=MAX_INPUTS)]
    ) = Field(repr=False)
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=MAX_DIMENSIONS)] | None = None

    @property
    def inputs(self) -> list[str | list[int]]:
        return texts_of(self.input)


def parse_embedding_request(body: bytes) -> EmbeddingRequest:
    """Raises: GatewayError as `gateway.schemas.chat.parse_chat_request`."""
    return validate_embedding_request(parse_object(body))


def validate_embedding_request(value: Mapping[str, Any]) -> EmbeddingRequest:
    return validated(EmbeddingRequest, value, neutral={})


def embedding_inner_body(request: EmbeddingRequest) -> bytes:
    return compact_json(request.model_dump(exclude_none=True))
