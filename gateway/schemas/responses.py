"""Which responses may be asked for?  OpenAI's newer endpoint; nothing is stored here.

A request is a chat in other words, and is held to the same rules.
https://platform.openai.com/docs/api-reference/responses/create
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from gateway.problems import GatewayError
from gateway.schemas.chat import MAX_MESSAGES, ChatRequest, require_consistent
from gateway.schemas.response_format import (
    MAX_DESCRIPTION_CHARS,
    MAX_SCHEMA_NAME_CHARS,
    TAGS,
    JsonObjectFormat,
    TextFormat,
)
from gateway.schemas.response_items import (
    ITEM_KINDS,
    PART_KINDS,
    InputItem,
    as_messages,
    require_called,
)
from gateway.schemas.sampling import MAX_OUTPUT_TOKENS, MAX_TOP_LOGPROBS
from gateway.schemas.tools import MAX_TOOLS, Function, FunctionName
from gateway.schemas.wire import (
    JsonObject,
    ModelName,
    Text,
    Wire,
    compact_json,
    parse_object,
    validated,
)

MAX_METADATA: Final = 16  # OpenAI's bounds
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512

NEUTRAL_VALUES: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "background": (False,),
        "reasoning": ({},),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "truncation": ("disabled",),
    }
)
_TAGS: Final = MappingProxyType(
    {
        "input": ITEM_KINDS,
        "content": PART_KINDS,
        "format": TAGS,
        "tool_choice": frozenset({"function", "allowed_tools"}),
    }
)
_PARAMS: Final = MappingProxyType(
    {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "response_format": "text.format",
        "logprobs": "include",
    }
)
_NAMED: Final = re.compile(rf"'({'|'.join(_PARAMS)})(?:[.\[][^']*)?'")


class SchemaFormat(Wire):
    """As ``response_format.json_schema`` of a chat, without the member in between."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(min_length=1, max_length=MAX_SCHEMA_NAME_CHARS)]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    schema_object: Annotated[JsonObject, Field(alias="schema", repr=False)]
    strict: bool | None = None


class TextConfig(Wire):
    format: (
        Annotated[TextFormat | JsonObjectFormat | SchemaFormat, Field(discriminator="type")] | None
    ) = None


class ResponseTool(Function):
    """Arguments follow ``parameters`` unless ``strict`` is false."""

    type: Literal["function"]


class NamedTool(Wire):
    type: Literal["function"]
    name: FunctionName


class AllowedTools(Wire):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=MAX_TOOLS)]


class ResponseStreamOptions(Wire):
    include_obfuscation: bool = True


MetadataKey = Annotated[Text, Field(max_length=MAX_METADATA_KEY_CHARS)]
MetadataValue = Annotated[Text, Field(max_length=MAX_METADATA_VALUE_CHARS)]
# Encrypted reasoning is a part of reasoning, of which there is none here.
Includable: TypeAlias = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class ResponseRequest(Wire):
    """POST /v1/responses. ``repr`` shows no input."""

    model: ModelName
    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES)] = Field(
        repr=False
    )
    instructions: Text | None = Field(default=None, repr=False)
    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    include: Annotated[list[Includable], Field(max_length=8)] | None = None
    text: TextConfig | None = Field(default=None, repr=False)
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = Field(
        default=None, repr=False
    )
    tool_choice: (
        Literal["none", "auto", "required"]
        | Annotated[NamedTool | AllowedTools, Field(discriminator="type")]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=MAX_METADATA)] | None = (
        Field(default=None, repr=False)
    )
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None

    @property
    def is_streamed(self) -> bool:
        return bool(self.stream)

    @property
    def wants_obfuscation(self) -> bool:
        return self.stream_options is None or self.stream_options.include_obfuscation

    @property
    def wants_logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.include or ())


def parse_response_request(body: bytes) -> tuple[ResponseRequest, ChatRequest]:
    """The request, and the chat that it is. Raises: GatewayError as `parse_chat_request`."""
    return validate_response_request(parse_object(body))


def validate_response_request(value: Mapping[str, Any]) -> tuple[ResponseRequest, ChatRequest]:
    request = validated(ResponseRequest, value, neutral=NEUTRAL_VALUES, tags=_TAGS)
    if request.stream_options is not None and not request.is_streamed:
        raise GatewayError(
            "invalid_value", "'stream_options' needs 'stream'.", param="stream_options"
        )
    if request.top_logprobs and not request.wants_logprobs:
        raise GatewayError(
            "invalid_value",
            "'top_logprobs' needs 'message.output_text.logprobs' in 'include'.",
            param="top_logprobs",
        )
    if not isinstance(request.input, str):
        require_called(request.input)
    try:
        chat = validated(ChatRequest, _as_chat(request), neutral={})
        require_consistent(chat)
    except GatewayError as err:
        raise in_words_of_a_response(err) from None
    return request, chat


def response_inner_body(request: ResponseRequest) -> bytes:
    """The validated request as the worker receives it."""
    value = request.model_dump(exclude_none=True, by_alias=True)
    for tool, dumped in zip(request.tools or [], value.get("tools", []), strict=True):
        if tool.parameters is not None:  # where null means something
            dumped["parameters"] = tool.parameters
    if request.text is not None and isinstance(request.text.format, SchemaFormat):
        value["text"]["format"]["schema"] = request.text.format.schema_object
    return compact_json(value)


def in_words_of_a_response(error: GatewayError) -> GatewayError:
    """An error of the chat that a response is: its parameter, and those its message names."""
    param = error.param and _PARAMS.get(error.param.partition("[")[0], error.param)
    message = _NAMED.sub(lambda named: f"'{_PARAMS[named[1]]}'", error.message)
    return GatewayError(error.code, message, param=param, detail_code=error.detail_code)


def without_implied_strictness(request: ResponseRequest, chat: ChatRequest) -> ChatRequest:
    """The same chat, whose tools are only strict where the request says so."""
    tools = [
        tool.model_copy(
            update={"function": tool.function.model_copy(update={"strict": bool(asked.strict)})}
        )
        for tool, asked in zip(chat.tools or (), request.tools or (), strict=True)
    ]
    return chat.model_copy(update={"tools": tools})


def _as_chat(request: ResponseRequest) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if request.instructions is not None:
        messages.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        messages.append({"role": "user", "content": request.input})
    else:
        messages += as_messages(request.input)
    same = ("model", "temperature", "top_p", "parallel_tool_calls", "stream")
    chat = {name: getattr(request, name) for name in same}
    chat |= {
        "messages": messages,
        "max_completion_tokens": request.max_output_tokens,
        "logprobs": request.wants_logprobs,
        "top_logprobs": request.top_logprobs,
        "response_format": _response_format(request),
        "tools": [_tool(tool) for tool in request.tools or ()],
        "tool_choice": _tool_choice(request),
    }
    return chat


def _response_format(request: ResponseRequest) -> dict[str, Any] | None:
    wanted = request.text.format if request.text is not None else None
    if wanted is None:
        return None
    if isinstance(wanted, SchemaFormat):
        schema = {"name": wanted.name, "schema": wanted.schema_object}
        return {"type": "json_schema", "json_schema": schema}
    return {"type": wanted.type}


def _tool(tool: ResponseTool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict is not False,
    }
    return {"type": "function", "function": function}


def _tool_choice(request: ResponseRequest) -> Any:
    choice = request.tool_choice
    if isinstance(choice, NamedTool):
        return _named(choice)
    if isinstance(choice, AllowedTools):
        allowed = {"mode": choice.mode, "tools": [_named(tool) for tool in choice.tools]}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    return choice


def _named(tool: NamedTool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.name}}
