"""What does a model see of tools, calls and results, and does what it must write follow them?"""

import json
from typing import Any

import pytest

from gateway.schemas import ChatRequest, parse_chat_request
from gateway.worker.tool_grammar import needs_tool_grammar, tool_grammar
from gateway.worker.tools import conversation_of
from runtime import InvalidGrammar
from runtime.grammar import GrammarSpec
from runtime.grammar_llguidance import LlguidanceCompiler
from runtime.tokenizer import Tokenizer
from tests.support.tiny_model import EOS_TOKEN_ID, tiny_metadata

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/Place"}},
            "required": ["place"],
            "additionalProperties": False,
            "$defs": {"Place": {"type": "string", "maxLength": 20}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Oslo"}'},
}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Oslo?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "snow"}]},
]
WEATHER_CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Oslo"}}\n</tool_call>'
CLOCK_CALL = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
WRONG_CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": 7}}\n</tool_call>'
ANSWER_FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": {"a": 1}}}}


def chat(**members: Any) -> ChatRequest:
    body = {"model": "m", "messages": TALK, "tools": [WEATHER, CLOCK], **members}
    return parse_chat_request(json.dumps(body).encode())


def test_a_template_that_knows_tools_gets_them() -> None:
    conversation = conversation_of(chat(), knows_tools=True)
    assert conversation.tools is not None
    assert conversation.tools[0] == WEATHER
    assert conversation.tools[1]["function"]["parameters"] == {"type": "object", "properties": {}}
    _, _, said, rain, snow = conversation.messages
    assert said["content"] == ""
    assert said["tool_calls"][0]["function"]["arguments"] == {"place": "Oslo"}
    assert (rain["name"], rain["content"], snow["content"]) == ("weather", "rain", "snow")


def test_another_gets_them_as_text() -> None:
    conversation = conversation_of(chat(), knows_tools=False)
    assert conversation.tools is None
    system, user, said, results = conversation.messages
    assert system["content"].startswith("Be brief.\n\n# Tools")
    assert json.dumps(WEATHER) in system["content"]
    assert user == {"role": "user", "content": "Oslo?"}
    assert said == {"role": "assistant", "content": f"{WEATHER_CALL}\n{WEATHER_CALL}"}
    assert results["role"] == "user"
    assert results["content"].count("<tool_response>") == 2


@pytest.mark.parametrize("knows_tools", [True, False])
def test_tools_that_may_not_be_called_are_not_shown(knows_tools: bool) -> None:
    conversation = conversation_of(chat(tool_choice="none"), knows_tools=knows_tools)
    assert conversation.tools is None
    assert "# Tools" not in conversation.messages[0]["content"]


def test_a_named_tool_is_the_only_one_shown() -> None:
    choice = {"type": "function", "function": {"name": "clock"}}
    conversation = conversation_of(chat(tool_choice=choice), knows_tools=True)
    assert [tool["function"]["name"] for tool in conversation.tools or ()] == ["clock"]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_the_only_ones_shown(mode: str) -> None:
    one = {"type": "function", "function": {"name": "clock"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [one]}}
    request = chat(tool_choice=choice)
    assert [tool.function.name for tool in request.offered_tools] == ["clock"]
    assert request.must_call == (mode == "required")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(tiny_metadata())


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> LlguidanceCompiler:
    return LlguidanceCompiler(tokenizer)


def accepts(
    grammars: LlguidanceCompiler, tokenizer: Tokenizer, spec: GrammarSpec, text: str
) -> bool:
    token_ids = [*tokenizer.encode(text, special=False), EOS_TOKEN_ID]
    return grammars.compile(spec).num_valid(token_ids) == len(token_ids)


FREE = ("hello", "", f"Well.\n{CLOCK_CALL}", f"{CLOCK_CALL}\nDone.")
ONE_CALL = (WEATHER_CALL, CLOCK_CALL)
TWO_CALLS = (f"{WEATHER_CALL}\n{CLOCK_CALL}",)


@pytest.mark.parametrize(
    ("members", "accepted", "refused"),
    [
        ({"tool_choice": "required"}, (*ONE_CALL, *TWO_CALLS), (*FREE, WRONG_CALL)),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            ONE_CALL,
            (*TWO_CALLS, *FREE, WRONG_CALL),
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
            (WEATHER_CALL,),
            (CLOCK_CALL, "hello"),
        ),
        ({"strict": True}, (*FREE, *ONE_CALL, *TWO_CALLS), (WRONG_CALL, f"So: {WRONG_CALL}")),
        (
            {"strict": True, "parallel_tool_calls": False},
            (*FREE[:-1], *ONE_CALL),
            (FREE[-1], *TWO_CALLS, WRONG_CALL),
        ),
        (
            {"response_format": ANSWER_FORMAT},
            ('{"a": 1}', WRONG_CALL, *ONE_CALL, *TWO_CALLS),
            ("hello", '{"a": 2}', f'{CLOCK_CALL}{{"a": 1}}'),
        ),
    ],
    ids=str,
)
def test_what_the_grammar_lets_through(
    grammars: LlguidanceCompiler,
    tokenizer: Tokenizer,
    members: dict[str, Any],
    accepted: tuple[str, ...],
    refused: tuple[str, ...],
) -> None:
    if members.pop("strict", False):
        strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
        members["tools"] = [strict, CLOCK]
    request = chat(**members)
    assert needs_tool_grammar(request)
    schema = {"const": {"a": 1}} if "response_format" in members else None
    spec = tool_grammar(request, answer_schema=schema, follows_all=request.must_call)
    assert [text for text in accepted if not accepts(grammars, tokenizer, spec, text)] == []
    assert [text for text in refused if accepts(grammars, tokenizer, spec, text)] == []


def test_free_calls_need_no_grammar() -> None:
    assert not needs_tool_grammar(chat())
    assert not needs_tool_grammar(chat(tool_choice="none"))


def test_a_grammar_too_large_is_refused() -> None:
    tools = [
        {
            "type": "function",
            "function": {"name": f"f{i}", "parameters": {"description": "x" * 999}},
        }
        for i in range(40)
    ]
    with pytest.raises(InvalidGrammar):
        tool_grammar(
            chat(tools=tools, tool_choice="required"), answer_schema=None, follows_all=True
        )
