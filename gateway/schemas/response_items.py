"""What may the input of a response consist of?  Messages, earlier answers, calls and their results.

What a response gave as output is accepted as input again.
https://platform.openai.com/docs/api-reference/responses/create
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from gateway.problems import GatewayError
from gateway.schemas.messages import MAX_CONTENT_PARTS
from gateway.schemas.tools import MAX_ARGUMENTS_CHARS, CallId, FunctionName
from gateway.schemas.wire import JsonObject, Text, Wire

MAX_ITEM_ID_CHARS: Final = 128
ITEM_KINDS: Final = frozenset({"message", "assistant", "function_call", "function_call_output"})

ItemId = Annotated[str, Field(max_length=MAX_ITEM_ID_CHARS)]
Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Wire):
    type: Literal["input_text"]
    text: Text


class OutputText(Wire):
    """Of an earlier answer; its log probabilities are not looked at."""

    type: Literal["output_text"]
    text: Text
    annotations: Annotated[list[None], Field(max_length=0)] | None = None
    logprobs: list[JsonObject] | None = Field(default=None, repr=False)


InputParts: TypeAlias = Annotated[
    list[InputText], Field(min_length=1, max_length=MAX_CONTENT_PARTS)
]
PART_KINDS: Final = frozenset({"input_text", "output_text"})
OutputPart: TypeAlias = Annotated[InputText | OutputText, Field(discriminator="type")]


class InputMessage(Wire):
    type: Literal["message"] | None = None
    role: Literal["user", "system", "developer"]
    content: Text | InputParts = Field(repr=False)
    status: Status | None = None
    id: ItemId | None = None


class OutputMessage(Wire):
    """An earlier answer."""

    type: Literal["message"] | None = None
    role: Literal["assistant"]
    content: (
        Text | Annotated[list[OutputPart], Field(min_length=1, max_length=MAX_CONTENT_PARTS)]
    ) = Field(repr=False)
    status: Status | None = None
    id: ItemId | None = None


class FunctionCall(Wire):
    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    arguments: Annotated[Text, Field(max_length=MAX_ARGUMENTS_CHARS, repr=False)]
    status: Status | None = None
    id: ItemId | None = None


class FunctionCallOutput(Wire):
    type: Literal["function_call_output"]
    call_id: CallId
    output: Text | InputParts = Field(repr=False)
    status: Status | None = None
    id: ItemId | None = None


def _kind(item: Any) -> str | None:
    """A message need not say that it is one."""
    if isinstance(item, Wire):
        item = item.__dict__
    if not isinstance(item, dict):
        return None
    kind = item.get("type") or "message"
    if kind == "message" and item.get("role") == "assistant":
        return "assistant"
    return kind if isinstance(kind, str) else None


InputItem: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[OutputMessage, Tag("assistant")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")],
    Discriminator(_kind),
]


def require_called(items: list[InputItem]) -> None:
    """Raises: GatewayError for the output of a function that nobody called."""
    called: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item, FunctionCall):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id not in called:
            param = f"input[{index}].call_id"
            raise GatewayError(
                "invalid_value", f"Invalid '{param}': no earlier function call has it.", param=param
            )


def as_messages(items: list[InputItem]) -> list[dict[str, Any]]:
    """The same as messages of a chat: calls join the answer that they stand behind."""
    messages: list[dict[str, Any]] = []
    for item in items:
        match item:
            case FunctionCallOutput():
                messages.append(
                    {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
                )
            case FunctionCall():
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                messages[-1].setdefault("tool_calls", []).append(_call(item))
            case _:
                messages.append({"role": item.role, "content": _text(item.content)})
    return messages


def _call(item: FunctionCall) -> dict[str, Any]:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _text(content: str | list[InputText] | list[OutputPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
