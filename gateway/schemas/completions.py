"""Which plain completions may be asked for?  OpenAI's older endpoint, without a chat template.

https://platform.openai.com/docs/api-reference/completions
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, cast

from pydantic import Field

from gateway.problems import GatewayError
from gateway.schemas.sampling import (
    MAX_ANSWERS,
    MAX_TOP_LOGPROBS,
    SamplingFields,
    StreamOptions,
)
from gateway.schemas.wire import Text, compact_json, parse_object, validated

DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's
MAX_PROMPTS: Final = 64
MAX_SEQUENCES: Final = 64  # of one request: prompts times answers
MAX_PROMPT_TOKENS: Final = 1 << 20
MAX_TOKEN_ID: Final = 1 << 20

NEUTRAL_VALUES: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType({"suffix": ("",)})

PromptTokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
PromptTokens = Annotated[list[PromptTokenId], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)]
PromptText = Annotated[Text, Field(min_length=1)]


def texts_of(value: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """One or several, each a text or token ids."""
    if isinstance(value, str):
        return [value]
    if isinstance(value[0], int):
        return [value]
    return list(cast("list[str | list[int]]", value))


class CompletionRequest(SamplingFields):
    """POST /v1/completions. ``repr`` shows no prompt."""

    prompt: (
        PromptText
        | Annotated[list[PromptText], Field(min_length=1, max_length=MAX_PROMPTS)]
        | PromptTokens
        | Annotated[list[PromptTokens], Field(min_length=1, max_length=MAX_PROMPTS)]
    ) = Field(repr=False)
    best_of: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    stream_options: StreamOptions | None = None

    @property
    def output_token_limit(self) -> int:
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        return texts_of(self.prompt)

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_obfuscation(self) -> bool:
        return self.stream_options is None or self.stream_options.include_obfuscation


def parse_completion_request(body: bytes) -> CompletionRequest:
    """Raises: GatewayError as `gateway.schemas.chat.parse_chat_request`."""
    return validate_completion_request(parse_object(body))


def validate_completion_request(value: Mapping[str, Any]) -> CompletionRequest:
    request = validated(CompletionRequest, value, neutral=NEUTRAL_VALUES)
    if request.stream_options is not None and not request.is_streamed:
        raise GatewayError(
            "invalid_value", "'stream_options' needs 'stream'.", param="stream_options"
        )
    if request.best_of not in (None, request.num_answers):
        raise GatewayError(
            "unsupported_parameter", "'best_of' is only supported where it is 'n'.", param="best_of"
        )
    if request.echo and request.logprobs is not None:
        raise GatewayError(
            "unsupported_parameter", "'echo' with 'logprobs' is not supported.", param="echo"
        )
    if request.guided_regex and request.guided_choice:
        raise GatewayError(
            "invalid_value",
            "'guided_regex' and 'guided_choice' exclude each other.",
            param="guided_regex",
        )
    if len(request.prompts) * request.num_answers > MAX_SEQUENCES:
        raise GatewayError(
            "invalid_value", f"Prompts times 'n' are more than {MAX_SEQUENCES}.", param="n"
        )
    return request


def completion_inner_body(request: CompletionRequest) -> bytes:
    """The validated request as the worker receives it; a streamed one always reports usage."""
    value = request.model_dump(exclude_none=True)
    value.pop("stream_options", None)
    if request.is_streamed:
        value["stream_options"] = {
            "include_usage": True,
            "include_obfuscation": request.wants_obfuscation,
        }
    return compact_json(value)
