"""Which chat requests are valid?  OpenAI's wire shape.

Shape: https://platform.openai.com/docs/api-reference/chat/create; ``top_k``, ``min_p``,
``repetition_penalty``, ``guided_regex``, ``guided_choice`` and ``ignore_eos`` are extensions that
other servers share.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field

from gateway.problems import GatewayError
from gateway.schemas.messages import ROLES, ChatMessage, require_consistent_messages
from gateway.schemas.response_format import TAGS, JsonSchemaFormat, ResponseFormat, TextFormat
from gateway.schemas.sampling import (
    MAX_OUTPUT_TOKENS,
    MAX_TOP_LOGPROBS,
    SamplingFields,
    StreamOptions,
)
from gateway.schemas.tools import (
    MAX_TOOLS,
    AllowedToolsChoice,
    FunctionTool,
    NamedToolChoice,
    ToolChoice,
)
from gateway.schemas.wire import compact_json, parse_object, validated

MAX_MESSAGES: Final = 2048

NEUTRAL_VALUES: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "metadata": ({},),
        "store": (False,),
        "service_tier": ("auto", "default"),
    }
)


_TAGS: Final = MappingProxyType(
    {
        "messages": ROLES,
        "response_format": TAGS,
        "tool_choice": frozenset({"function", "allowed_tools"}),
    }
)


class ChatRequest(SamplingFields):
    """POST /v1/chat/completions. ``repr`` shows no message."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, repr=False)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = Field(default=None, repr=False)
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)] | None = Field(
        default=None, repr=False
    )
    tool_choice: ToolChoice | None = Field(default=None, repr=False)
    parallel_tool_calls: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_obfuscation(self) -> bool:
        return self.stream_options is None or self.stream_options.include_obfuscation

    @property
    def output_token_limit(self) -> int | None:
        """`max_completion_tokens`, else its older name `max_tokens`."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def num_top_logprobs(self) -> int | None:
        """None: no log probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def grammar_parameter(self) -> str | None:
        """Which parameter asks for a form of the answer; there is at most one."""
        is_free = self.response_format is None or isinstance(self.response_format, TextFormat)
        return self.guided_parameter or (None if is_free else "response_format")

    @property
    def offered_tools(self) -> list[FunctionTool]:
        """Those that the model may call."""
        if self.tool_choice == "none":
            return []
        names = self.chosen_names
        return [tool for tool in self.tools or [] if names is None or tool.function.name in names]

    @property
    def must_call(self) -> bool:
        if isinstance(self.tool_choice, AllowedToolsChoice):
            return self.tool_choice.allowed_tools.mode == "required"
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedToolChoice)

    @property
    def chosen_names(self) -> set[str] | None:
        """None: all of them."""
        if isinstance(self.tool_choice, NamedToolChoice):
            return {self.tool_choice.function.name}
        if isinstance(self.tool_choice, AllowedToolsChoice):
            return {tool.function.name for tool in self.tool_choice.allowed_tools.tools}
        return None


def parse_chat_request(body: bytes) -> ChatRequest:
    """Parse a request body of bounded size.

    Raises: GatewayError with `invalid_json`, `invalid_type`, `invalid_value`,
    `missing_required_parameter` or `unsupported_parameter`; `param` names the place.
    """
    return validate_chat_request(parse_object(body))


def validate_chat_request(value: Mapping[str, Any]) -> ChatRequest:
    request = validated(ChatRequest, value, neutral=NEUTRAL_VALUES, tags=_TAGS)
    require_consistent(request)
    return request


def inner_body(request: ChatRequest) -> bytes:
    """The validated request as the worker receives it; a streamed one always reports usage."""
    value = request.model_dump(exclude_none=True, by_alias=True)
    if isinstance(request.response_format, JsonSchemaFormat):  # where null means something
        schema = request.response_format.json_schema.schema_object
        value["response_format"]["json_schema"]["schema"] = schema
    for tool, dumped in zip(request.tools or [], value.get("tools", []), strict=True):
        if tool.function.parameters is not None:
            dumped["function"]["parameters"] = tool.function.parameters
    if request.is_streamed:
        value["stream_options"] = {
            "include_usage": True,
            "include_obfuscation": request.wants_obfuscation,
        }
    else:
        value.pop("stream_options", None)
    return compact_json(value)


def require_consistent(request: ChatRequest) -> None:
    """What no member alone can tell. Raises: GatewayError `invalid_value`, `invalid_type`."""
    require_consistent_messages(request.messages)
    if request.stream_options is not None and not request.is_streamed:
        raise _invalid("stream_options", "'stream_options' needs 'stream'.")
    if request.top_logprobs and not request.logprobs:
        raise _invalid("top_logprobs", "'top_logprobs' needs 'logprobs'.")
    asked = [name for name in ("guided_regex", "guided_choice") if getattr(request, name)]
    if request.response_format is not None and not isinstance(request.response_format, TextFormat):
        asked.append("response_format")
    if len(asked) > 1:
        raise _invalid(asked[0], f"'{asked[0]}' and '{asked[1]}' exclude each other.")
    _require_tools(request)


def _require_tools(request: ChatRequest) -> None:
    names = [tool.function.name for tool in request.tools or ()]
    if len(set(names)) < len(names):
        raise _invalid("tools", "Two tools have the same name.")
    wanted = request.chosen_names
    if (request.must_call and not names) or (wanted is not None and not wanted <= set(names)):
        raise _invalid("tool_choice", "'tool_choice' needs a tool that 'tools' has.")
    if request.offered_tools and (guided := request.guided_parameter) is not None:
        raise _invalid(guided, f"'{guided}' and 'tools' exclude each other.")


def _invalid(param: str, message: str) -> GatewayError:
    return GatewayError("invalid_value", message, param=param)
