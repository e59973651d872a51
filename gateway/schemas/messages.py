"""Which messages may a conversation have?  One type for each role."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from gateway.problems import GatewayError
from gateway.schemas.tools import MAX_TOOL_CALLS, CallId, ToolCall
from gateway.schemas.wire import Text, Wire

MAX_CONTENT_PARTS: Final = 1024
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


_HAS_CONTENT: Final[JsonDict] = {
    "required": ["content"],
    "properties": {"content": {"type": ["string", "array"]}},
}
_HAS_CALLS: Final[JsonDict] = {
    "required": ["tool_calls"],
    "properties": {"tool_calls": {"type": "array", "minItems": 1}},
}


class TextPart(Wire):
    type: Literal["text"]
    text: Text


Content: TypeAlias = (
    Text | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_CONTENT_PARTS)]
)


class _Spoken(Wire):
    content: Content = Field(repr=False)

    def text(self) -> str:
        """The content as one string; text parts are joined without a separator."""
        return text_of(self.content)


class PromptMessage(_Spoken):
    role: Literal["system", "developer", "user"]

    def template_role(self) -> str:
        """`developer` is OpenAI's newer name for `system`; chat templates know the latter."""
        return "system" if self.role == "developer" else self.role


class AssistantMessage(Wire):
    """An earlier answer, as it was given; what it has no member for may be null or empty."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_HAS_CONTENT, _HAS_CALLS]})

    role: Literal["assistant"]
    content: Content | None = Field(default=None, repr=False)
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS)] | None = None
    refusal: None = None
    annotations: Annotated[list[None], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None

    def text(self) -> str:
        return "" if self.content is None else text_of(self.content)


class ToolMessage(_Spoken):
    """What a function gave."""

    role: Literal["tool"]
    tool_call_id: CallId


ChatMessage: TypeAlias = Annotated[
    PromptMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


def text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content)


def require_consistent_messages(messages: list[ChatMessage]) -> None:
    """Raises: GatewayError for an answer without content, or a tool's that nobody called."""
    called: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            if message.content is None and not message.tool_calls:
                param = f"messages[{index}].content"
                raise GatewayError("invalid_type", f"Invalid '{param}': null.", param=param)
            called.update(call.id for call in message.tool_calls or ())
        elif isinstance(message, ToolMessage) and message.tool_call_id not in called:
            param = f"messages[{index}].tool_call_id"
            raise GatewayError(
                "invalid_value", f"Invalid '{param}': no earlier message has it.", param=param
            )
