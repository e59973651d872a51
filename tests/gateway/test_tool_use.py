"""Can an unmodified client have a model call its tools, whole and streamed?"""

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.gateway.support import Stack
from tests.gateway.tiny_stack import TINY, tiny

__all__ = ["tiny"]

ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
TALK: Any = [{"role": "user", "content": "add"}]
ASKED: Any = {"model": TINY, "tools": [ADD], "seed": 1, "max_tokens": 300}


def test_a_forced_call_and_its_result(tiny: Stack) -> None:
    client = tiny.openai
    answer = client.chat.completions.create(
        **ASKED, messages=TALK, tool_choice="required", parallel_tool_calls=False
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "add"
    assert 0 <= json.loads(call.function.arguments)["a"] <= 99
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "7"}
    more = client.chat.completions.create(
        **ASKED | {"max_tokens": 4}, messages=[*TALK, choice.message, result]
    )
    assert more.usage is not None
    assert more.usage.prompt_tokens > (answer.usage.prompt_tokens if answer.usage else 0)


def test_a_forced_call_is_streamed(tiny: Stack) -> None:
    with tiny.openai.chat.completions.stream(
        **ASKED,
        messages=TALK,
        tool_choice={"type": "function", "function": {"name": "add"}},
        parallel_tool_calls=False,
    ) as stream:
        kinds = [event.type for event in stream]
        choice = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds
    (call,) = choice.message.tool_calls or []
    assert json.loads(call.function.arguments).keys() == {"a"}
    assert choice.finish_reason == "tool_calls"


def test_a_strict_tool_may_stay_uncalled(tiny: Stack) -> None:
    strict = {**ADD, "function": {**ADD["function"], "strict": True}}
    answer = tiny.openai.chat.completions.create(
        **ASKED | {"tools": [strict], "max_tokens": 20}, messages=TALK, n=2
    )
    assert [choice.finish_reason for choice in answer.choices] == ["length"] * 2


def test_a_schema_that_no_grammar_says_is_let_go_where_it_may_be(tiny: Stack) -> None:
    odd: Any = {"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}
    answer = tiny.openai.chat.completions.create(
        **ASKED | {"tools": [odd]}, messages=TALK, tool_choice="required", parallel_tool_calls=False
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "f"


class Sum(BaseModel):
    """What a client's own type says."""

    a: Literal[1, 2]


def test_the_clients_own_types(tiny: Stack) -> None:
    tool: Any = openai.pydantic_function_tool(Sum)
    asked: Any = {**ASKED, "messages": TALK, "parallel_tool_calls": False}
    parsed = tiny.openai.chat.completions.parse(**asked | {"tools": [tool]}, tool_choice="required")
    (call,) = parsed.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Sum)
    del asked["tools"]
    whole = tiny.openai.chat.completions.parse(**asked, response_format=Sum)
    assert isinstance(whole.choices[0].message.parsed, Sum)
    response = tiny.openai.responses.parse(model=TINY, input="x", text_format=Sum)
    assert isinstance(response.output_parsed, Sum)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "sub"}}}, "tool_choice"),
        ({"tools": [ADD, ADD]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"extra_body": {"guided_regex": "a"}}, "guided_regex"),
        ({"tools": [{**ADD, "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {**ADD, "function": {"name": "f", "parameters": {"not": {}}, "strict": True}}
                ],
            },
            "tools",
        ),
        (
            {"messages": [*TALK, {"role": "tool", "tool_call_id": "x", "content": ""}]},
            "messages[1].tool_call_id",
        ),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_refused(tiny: Stack, members: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        tiny.openai.chat.completions.create(**ASKED | {"messages": TALK} | members)
    assert caught.value.param == param
