"""Which functions may a model call, and must it?  OpenAI's `tools` and `tool_choice`.

https://platform.openai.com/docs/guides/function-calling
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gateway.schemas.wire import JsonObject, Text, Wire

MAX_TOOLS: Final = 128  # OpenAI's bound
MAX_DESCRIPTION_CHARS: Final = 32_768
MAX_TOOL_CALLS: Final = 128  # of one message
MAX_ARGUMENTS_CHARS: Final = 1 << 18
MAX_CALL_ID_CHARS: Final = 64  # OpenAI's bound

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]  # OpenAI's own
CallId = Annotated[Text, Field(min_length=1, max_length=MAX_CALL_ID_CHARS)]


class Function(Wire):
    """``strict``: the arguments always follow ``parameters``, also where the model is free to call
    or not; without it they do only where a call is forced.
    """

    name: FunctionName
    description: Annotated[Text, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    parameters: JsonObject | None = Field(default=None, repr=False)
    strict: bool | None = None


class FunctionTool(Wire):
    type: Literal["function"]
    function: Function


class NamedFunction(Wire):
    name: FunctionName


class NamedToolChoice(Wire):
    type: Literal["function"]
    function: NamedFunction


class AllowedSet(Wire):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedToolChoice], Field(min_length=1, max_length=MAX_TOOLS)]


class AllowedToolsChoice(Wire):
    """Of the tools only these; the others are not shown to the model."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedSet


ToolChoice: TypeAlias = (
    Literal["none", "auto", "required"]
    | Annotated[NamedToolChoice | AllowedToolsChoice, Field(discriminator="type")]
)


class CalledFunction(Wire):
    """``arguments`` is JSON text as the model wrote it, which may be none."""

    name: FunctionName
    arguments: Annotated[Text, Field(max_length=MAX_ARGUMENTS_CHARS, repr=False)]


class ToolCall(Wire):
    id: CallId
    type: Literal["function"]
    function: CalledFunction
