"""Which chat requests are valid?  OpenAI's wire shape, parsed strictly, once, at the boundary.

Every parameter is either honoured, listed in ``IGNORED_PARAMETERS``, or refused with
``unsupported_parameter``; nothing is silently dropped. A value that asks for the default
behaviour (``n: 1``, ``logprobs: false``) is accepted because honouring it needs nothing.
Shape: https://platform.openai.com/docs/api-reference/chat/create; ``top_k``, ``min_p``,
``repetition_penalty``, ``guided_regex``, ``guided_choice`` and ``ignore_eos`` are extensions that
other servers share.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from gateway.problems import GatewayError
from gateway.response_format import TAGS, JsonSchemaFormat, ResponseFormat, TextFormat

MAX_MESSAGES: Final = 2048
MAX_CONTENT_PARTS: Final = 1024
MAX_STOP_STRINGS: Final = 4  # OpenAI's bound
MAX_STOP_CHARS: Final = 256
MAX_MODEL_NAME_CHARS: Final = 128
MAX_OUTPUT_TOKENS: Final = 1 << 20
MAX_TOP_LOGPROBS: Final = 20  # OpenAI's bound
MAX_LOGIT_BIASES: Final = 1024
MAX_GRAMMAR_CHARS: Final = 32_768
MAX_CHOICES: Final = 512
_MAX_SHOWN_PARAM_CHARS: Final = 96

IGNORED_PARAMETERS: Final = frozenset({"user", "safety_identifier"})
"""Labels about the end user: accepted for compatibility, never stored or forwarded."""

_NEUTRAL_VALUES: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "n": (1,),
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "functions": ([],),
        "modalities": (["text"],),
        "store": (False,),
        "service_tier": ("auto", "default"),
    }
)


def _require_unicode(text: str) -> str:
    """JSON can escape half a surrogate pair [RFC 8259 sec. 8.2]; no encoding has bytes for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("lone_surrogate", "String has a lone surrogate") from None
    return text


Text = Annotated[str, AfterValidator(_require_unicode)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")]
Choice = Annotated[Text, Field(min_length=1, max_length=MAX_GRAMMAR_CHARS)]


class _Wire(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class TextPart(_Wire):
    type: Literal["text"]
    text: Text


class ChatMessage(_Wire):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_CONTENT_PARTS)]

    def text(self) -> str:
        """The content as one string; text parts are joined without a separator."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)

    def template_role(self) -> str:
        """`developer` is OpenAI's newer name for `system`; chat templates know the latter."""
        return "system" if self.role == "developer" else self.role


class StreamOptions(_Wire):
    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class ChatRequest(_Wire):
    """POST /v1/chat/completions. ``repr`` shows no message."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS)]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, repr=False)]
    max_tokens: Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    logit_bias: (
        Annotated[
            dict[TokenId, Annotated[float, Field(ge=-100, le=100)]],
            Field(max_length=MAX_LOGIT_BIASES),
        ]
        | None
    ) = Field(default=None, repr=False)
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = (
        Field(default=None, repr=False)
    )
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = Field(default=None, repr=False)
    guided_regex: Annotated[Text, Field(min_length=1, max_length=MAX_GRAMMAR_CHARS)] | None = Field(
        default=None, repr=False
    )
    guided_choice: Annotated[list[Choice], Field(min_length=1, max_length=MAX_CHOICES)] | None = (
        Field(default=None, repr=False)
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def is_streamed(self) -> bool:
        return bool(self.stream)

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

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

    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


def parse_chat_request(body: bytes) -> ChatRequest:
    """Parse a request body of bounded size.

    Raises: GatewayError with `invalid_json`, `invalid_type`, `invalid_value`,
    `missing_required_parameter` or `unsupported_parameter`; `param` names the place. The parser's
    own error is not chained, because it can quote the body.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise GatewayError("invalid_json", "The request body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise GatewayError("invalid_type", "The request body must be a JSON object.")
    known = {name: item for name, item in value.items() if _is_kept(name, item)}
    try:
        request = ChatRequest.model_validate(known)
    except ValidationError as err:
        failure = _first_failure(err)
    else:
        _require_consistent(request)
        return request
    raise failure


def _require_consistent(request: ChatRequest) -> None:
    if request.top_logprobs and not request.logprobs:
        raise GatewayError(
            "invalid_value", "'top_logprobs' needs 'logprobs'.", param="top_logprobs"
        )
    response_format = request.response_format
    grammars = {
        "guided_regex": request.guided_regex is not None,
        "guided_choice": request.guided_choice is not None,
        "response_format": not (response_format is None or isinstance(response_format, TextFormat)),
    }
    asked = [name for name, is_asked in grammars.items() if is_asked]
    if len(asked) > 1:
        raise GatewayError(
            "invalid_value", f"'{asked[0]}' and '{asked[1]}' exclude each other.", param=asked[0]
        )


def inner_body(request: ChatRequest) -> bytes:
    """The validated request as the worker receives it; a streamed one always reports usage."""
    value = request.model_dump(exclude_none=True, by_alias=True)
    if isinstance(request.response_format, JsonSchemaFormat):  # where null means something
        schema = request.response_format.json_schema.schema_object
        value["response_format"]["json_schema"]["schema"] = schema
    if request.is_streamed:
        value["stream_options"] = {"include_usage": True}
    else:
        value.pop("stream_options", None)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _is_kept(name: str, item: Any) -> bool:
    if name in ChatRequest.model_fields:
        return item is not None or name in {"model", "messages"}
    if item is None or name in IGNORED_PARAMETERS:
        return False
    neutral = _NEUTRAL_VALUES.get(name, ())
    if any(type(item) is type(accepted) and item == accepted for accepted in neutral):
        return False
    shown = _shown(name)
    raise GatewayError(
        "unsupported_parameter", f"Unsupported parameter: '{shown}' (or its value).", param=shown
    )


def _first_failure(err: ValidationError) -> GatewayError:
    """The most telling of pydantic's findings; inputs are never part of the message."""
    details = err.errors(include_url=False, include_context=False, include_input=False)
    detail = max(details, key=lambda found: (len(found["loc"]), not _is_type(found["type"])))
    if details[0]["type"] == "missing":
        detail = details[0]
    kind, param = str(detail["type"]), _param_path(detail["loc"])
    if kind == "missing":
        return GatewayError(
            "missing_required_parameter", f"Missing required parameter: '{param}'.", param=param
        )
    if kind == "extra_forbidden":
        return GatewayError(
            "unsupported_parameter", f"Unsupported parameter: '{param}'.", param=param
        )
    if kind == "union_tag_invalid":
        return GatewayError(
            "unsupported_parameter", f"Unsupported value for '{param}.type'.", param=param
        )
    if kind == "union_tag_not_found":
        return GatewayError(
            "missing_required_parameter",
            f"Missing required parameter: '{param}.type'.",
            param=f"{param}.type",
        )
    if kind == "literal_error" and param.endswith((".type", ".role", ".include_obfuscation")):
        code = "unsupported_parameter" if not param.endswith(".role") else "invalid_value"
        return GatewayError(code, f"Unsupported value for '{param}': {detail['msg']}.", param=param)
    code = "invalid_type" if _is_type(kind) else "invalid_value"
    return GatewayError(code, f"Invalid '{param}': {detail['msg']}.", param=param)


def _is_type(kind: str) -> bool:
    return kind.endswith("_type")


def _param_path(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content`: without the names that pydantic adds for union branches."""
    path = ""
    if loc[:1] == ("response_format",) and len(loc) > 1 and loc[1] in TAGS:
        loc = (loc[0], *loc[2:])  # pydantic's name of the branch
    for item in loc:
        if isinstance(item, int):
            path += f"[{item}]"
        elif not (item in {"str", "constrained-str"} or item.startswith(("list[", "function-"))):
            path += f".{item}" if path else item
    return _shown(path)


def _shown(name: str) -> str:
    printable = "".join(char for char in name if char.isprintable())
    return printable[:_MAX_SHOWN_PARAM_CHARS]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")
