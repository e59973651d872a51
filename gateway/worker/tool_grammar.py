"""Which answers are well-formed where tools are called?  A Lark grammar over JSON schemas.

It is needed where a call is forced, where a tool is `strict`, and where the rest of the answer
has a form of its own. Each tool's schema stays a root, so that references within it hold.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.schemas import ChatRequest
from gateway.schemas.tools import Function
from gateway.worker.tool_calls import CLOSE, OPEN
from runtime import GrammarSpec
from runtime.grammar import JSON_WHITESPACE

MAX_FORCED_CALLS: Final = 8  # in one answer that has to be calls
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def needs_tool_grammar(chat: ChatRequest) -> bool:
    tools = chat.offered_tools
    is_strict = any(tool.function.strict for tool in tools)
    return bool(tools) and (chat.must_call or is_strict or chat.grammar_parameter is not None)


def tool_grammar(
    chat: ChatRequest, *, answer_schema: Mapping[str, Any] | None, follows_all: bool
) -> GrammarSpec:
    """`answer_schema`: what an answer follows that is no call, or None where it is free;
    `follows_all`: arguments follow the schemas of tools that are not strict, too.

    Raises: runtime.InvalidGrammar when it is too large.
    """
    functions = [tool.function for tool in chat.offered_tools]
    is_followed = chat.must_call or answer_schema is not None
    calls = "call" if chat.parallel_tool_calls is False else _several("call")
    rules = _call_rules(functions, follows_all=follows_all)
    if not is_followed:
        is_single = chat.parallel_tool_calls is False  # then nothing comes behind the call
        rules += [
            "start: TEXT | in_text" if is_single else "start: in_text* TEXT",
            r"TEXT: /(.|\n)*/",
            f"trigger[lazy]: TEXT {json.dumps(OPEN)}",
            f'in_text: trigger "\\n" body {json.dumps(chr(10) + CLOSE)}',
        ]
    elif answer_schema is None or chat.must_call:
        rules.append(f"start: {calls}")
    else:
        rules += [f"start: answer | {calls}", f"answer: {_json(answer_schema)}"]
    return GrammarSpec(kind="lark", sources=("\n".join(["%llguidance {}", *rules]),))


def _several(rule: str) -> str:
    return f'{rule} ("\\n" {rule}){{0,{MAX_FORCED_CALLS - 1}}}'


def _call_rules(functions: Sequence[Function], *, follows_all: bool) -> list[str]:
    rules = [
        f"call: {json.dumps(OPEN + chr(10))} body {json.dumps(chr(10) + CLOSE)}",
        "body: " + " | ".join(f"call_{index}" for index in range(len(functions))),
    ]
    for index, function in enumerate(functions):
        head = f'{{"name": {json.dumps(function.name)}, "arguments": '
        is_followed = follows_all or function.strict
        schema = _parameters(function) if is_followed else {"type": "object"}
        rules += [
            f'call_{index}: {json.dumps(head)} arguments_{index} "}}"',
            f"arguments_{index}: {_json(schema)}",
        ]
    return rules


def _parameters(function: Function) -> Mapping[str, Any]:
    """Arguments are an object, whatever else the schema says."""
    if function.parameters is None:
        return _NO_PARAMETERS
    return (
        function.parameters
        if "type" in function.parameters
        else {
            **function.parameters,
            "type": "object",
        }
    )


def _json(schema: Mapping[str, Any]) -> str:
    guidance = {"x-guidance": {"whitespace_pattern": JSON_WHITESPACE}}
    return "%json " + json.dumps({**schema, **guidance})
