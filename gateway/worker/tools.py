"""How does a conversation with tools become messages that this model's template can write?

Templates that know tools get them. For others the tools are a part of the system message, in the
words of Qwen2.5's own template, and calls and their results are text [docs/decisions/0017].
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.schemas import ChatRequest
from gateway.schemas.messages import AssistantMessage, ToolMessage
from gateway.schemas.tools import FunctionTool, ToolCall
from gateway.worker.tool_calls import CLOSE, OPEN

Message = Mapping[str, Any]

_OFFER: Final = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a chat template gets."""

    messages: Sequence[Message] = field(repr=False)
    tools: Sequence[Mapping[str, Any]] | None = field(default=None, repr=False)


def conversation_of(chat: ChatRequest, *, knows_tools: bool) -> Conversation:
    """`knows_tools`: the template writes tools, calls and results itself."""
    tools = [_dumped(tool) for tool in chat.offered_tools]
    if knows_tools:
        return Conversation(messages=_native(chat), tools=tools or None)
    messages = _as_text(chat)
    if tools:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        messages = _with_offer(messages, _OFFER.format(tools=lines))
    return Conversation(messages=messages)


def _dumped(tool: FunctionTool) -> dict[str, Any]:
    """Without `strict`, which is ours to keep."""
    function = tool.function.model_dump(include={"name", "description"}, exclude_none=True)
    parameters = tool.function.parameters
    function["parameters"] = (
        {"type": "object", "properties": {}} if parameters is None else parameters
    )
    return {"type": "function", "function": function}


def _native(chat: ChatRequest) -> list[Message]:
    names: dict[str, str] = {}
    messages: list[Message] = []
    for message in chat.messages:
        if isinstance(message, ToolMessage):
            name = names[message.tool_call_id]
            messages.append(
                {
                    "role": "tool",
                    "content": message.text(),
                    "name": name,
                    "tool_call_id": message.tool_call_id,
                }
            )
        elif isinstance(message, AssistantMessage):
            names |= {call.id: call.function.name for call in message.tool_calls or ()}
            calls = [_call_value(call) for call in message.tool_calls or ()]
            said: dict[str, Any] = {"role": "assistant", "content": message.text()}
            messages.append(said | {"tool_calls": calls} if calls else said)
        else:
            messages.append({"role": message.template_role(), "content": message.text()})
    return messages


def _call_value(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(call: ToolCall) -> Any:
    """As a value where they are JSON: templates write it themselves."""
    try:
        return json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        return call.function.arguments


def _as_text(chat: ChatRequest) -> list[Message]:
    messages: list[Message] = []
    results: list[str] = []
    for message in chat.messages:
        if isinstance(message, ToolMessage):
            results.append(f"<tool_response>\n{message.text()}\n</tool_response>")
            continue
        if results:
            messages.append({"role": "user", "content": "\n".join(results)})
            results = []
        if isinstance(message, AssistantMessage):
            messages.append({"role": "assistant", "content": _said(message)})
        else:
            messages.append({"role": message.template_role(), "content": message.text()})
    if results:
        messages.append({"role": "user", "content": "\n".join(results)})
    return messages


def _said(message: AssistantMessage) -> str:
    calls = [
        f'{OPEN}\n{{"name": {json.dumps(call.function.name)}, '
        f'"arguments": {call.function.arguments}}}\n{CLOSE}'
        for call in message.tool_calls or ()
    ]
    return "\n".join(([message.text()] if message.text() else []) + calls)


def _with_offer(messages: Sequence[Message], offer: str) -> list[Message]:
    first = messages[0]
    if first["role"] == "system":
        return [{"role": "system", "content": f"{first['content']}\n\n{offer}"}, *messages[1:]]
    return [{"role": "system", "content": offer}, *messages]
