"""Are responses answered as OpenAI's newer endpoint does, by the unmodified client?"""

import json
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

from gateway.calls import MAX_ANSWER_BYTES
from gateway.problems import GatewayError
from gateway.response_call import ResponseReader
from gateway.schemas.responses import (
    in_words_of_a_response,
    parse_response_request,
    response_inner_body,
)
from gateway.worker import service
from tests.gateway.support import Stack
from tests.gateway.test_tool_use import ADD
from tests.gateway.tiny_stack import TINY, tiny

__all__ = ["tiny"]

TOOL: Any = {"type": "function", **ADD["function"]}
NUMBER: Any = {
    "format": {
        "type": "json_schema",
        "name": "number",
        "schema": {
            "type": "object",
            "properties": {"n": {"const": None}},
            "required": ["n"],
            "additionalProperties": False,
        },
        "strict": True,
    }
}


def test_a_whole_response(tiny: Stack) -> None:
    response = tiny.openai.responses.create(
        model=TINY,
        input="the user",
        instructions="Be brief.",
        max_output_tokens=8,
        metadata={"a": "b"},
        temperature=0,
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    (message,) = response.output
    assert isinstance(message, ResponseOutputMessage)
    assert response.usage is not None
    assert response.usage.output_tokens == 8
    assert (response.metadata, response.instructions) == ({"a": "b"}, "Be brief.")
    chat = tiny.openai.chat.completions.create(
        model=TINY,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "the user"},
        ],
        max_tokens=8,
        temperature=0,
    )
    assert response.output_text == chat.choices[0].message.content
    again: Any = [*response.output, {"role": "user", "content": "more"}]
    more = tiny.openai.responses.create(model=TINY, input=again, max_output_tokens=1)
    assert more.usage is not None


def test_a_stream_builds_the_same_response(tiny: Stack) -> None:
    asked: Any = {"model": TINY, "input": "the user", "max_output_tokens": 9, "temperature": 0}
    whole = tiny.openai.responses.create(**asked)
    with tiny.openai.responses.stream(**asked) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[1].type] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.incomplete"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text
    final = events[-1].response
    assert final.output_text == text
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.total_tokens == whole.usage.total_tokens


def test_text_of_a_schema(tiny: Stack) -> None:
    response = tiny.openai.responses.create(
        model=TINY, input="the user", text=NUMBER, max_output_tokens=100
    )
    assert json.loads(response.output_text) == {"n": None}
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_schema"


def test_a_call_and_its_result(tiny: Stack) -> None:
    client = tiny.openai
    asked: Any = {"model": TINY, "tools": [TOOL], "parallel_tool_calls": False}
    talk: Any = [{"role": "user", "content": "add"}]
    response = client.responses.create(
        **asked, input=talk, tool_choice="required", max_output_tokens=300
    )
    (call,) = response.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.status) == ("add", "completed")
    assert json.loads(call.arguments).keys() == {"a"}
    talk += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "7"}]
    more = client.responses.create(model=TINY, input=talk, max_output_tokens=2)
    assert more.usage is not None


@pytest.mark.parametrize("strict", [True, None, False])
def test_tools_are_strict_where_that_is_possible(tiny: Stack, strict: bool | None) -> None:
    client = tiny.openai
    odd: Any = {"type": "function", "name": "f", "parameters": {"not": {}}, "strict": strict}
    asked: Any = {"model": TINY, "input": "x", "max_output_tokens": 2}
    if strict:
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**asked, tools=[odd])
        assert (caught.value.code, caught.value.param) == ("invalid_grammar", "tools")
        return
    (tool,) = client.responses.create(**asked, tools=[odd]).tools
    assert tool.type == "function"
    assert tool.strict is False
    fit: Any = {**TOOL, "strict": strict}
    (plain,) = client.responses.create(**asked, tools=[fit]).tools
    assert plain.type == "function"
    assert plain.strict is (strict is None)


def test_a_call_is_streamed(tiny: Stack) -> None:
    with tiny.openai.responses.stream(
        model=TINY,
        input="add",
        tools=[TOOL],
        tool_choice={"type": "function", "name": "add"},
        parallel_tool_calls=False,
        max_output_tokens=300,
    ) as stream:
        events = list(stream)
    written = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert "".join(written) == done.arguments
    assert json.loads(done.arguments).keys() == {"a"}


def test_log_probabilities(tiny: Stack) -> None:
    response = tiny.openai.responses.create(
        model=TINY,
        input="the user",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        max_output_tokens=3,
    )
    (message,) = response.output
    assert isinstance(message, ResponseOutputMessage)
    (part,) = message.content
    assert part.type == "output_text"
    assert [len(entry.top_logprobs) for entry in part.logprobs or []] == [2, 2, 2]


def test_log_probabilities_that_no_event_holds_end_the_stream(
    tiny: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last events repeat all of them."""
    monkeypatch.setattr(service, "LOGPROB_BYTES", MAX_ANSWER_BYTES // 6)
    with tiny.openai.responses.stream(
        model=TINY,
        input="the user",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        max_output_tokens=3,
    ) as stream:
        *_, last = stream
    assert last.type == "response.incomplete"
    assert last.response.usage is not None
    assert last.response.usage.output_tokens == 2


def test_what_was_asked_for_in_the_wrong_way_raises(tiny: Stack) -> None:
    with pytest.raises(openai.NotFoundError):
        tiny.openai.responses.create(model="gpt", input="x")
    with pytest.raises(openai.NotFoundError):
        tiny.openai.responses.retrieve("resp_x")
    with pytest.raises(openai.BadRequestError) as caught:
        tiny.openai.responses.create(model=TINY, input="x" * 3000)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"store": True}, "unsupported_parameter", "store"),
        ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
        ({"input": []}, "invalid_value", "input"),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            "unsupported_parameter",
            "input[0].type",
        ),
        ({"input": [{"role": "user", "content": 3}]}, "invalid_type", "input[0].content"),
        (
            {"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]},
            "invalid_value",
            "input[0].call_id",
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": 1}]}]},
            "invalid_type",
            "input[0].content[0].text",
        ),
        ({"metadata": {"k" * 65: "v"}}, "invalid_value", f"metadata.{'k' * 65}"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "unsupported_parameter",
            "input[0].content[0].type",
        ),
        ({"tools": [{"type": "web_search"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "invalid_value", "tools"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "unsupported_parameter", "text.format.type"),
        ({"text": {"verbosity": "low"}}, "unsupported_parameter", "text.verbosity"),
        ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
        ({"include": ["file_search_call.results"]}, "invalid_value", "include[0]"),
        ({"metadata": {"a": 3}}, "invalid_type", "metadata.a"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"stream_options": {}}, "invalid_value", "stream_options"),
        (
            {
                "tools": [TOOL],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "sub"}],
                },
            },
            "invalid_value",
            "tool_choice",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_refusals(members: Any, code: str, param: str) -> None:
    with pytest.raises(GatewayError) as caught:
        parse_response_request(json.dumps({"model": "m", "input": "x", **members}).encode())
    assert (caught.value.code, caught.value.param) == (code, param)
    assert "messages" not in caught.value.message


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Invalid 'messages[0].tool_calls': x.", "Invalid 'input': x."),
        ("'response_format' and 'tools' exclude.", "'text.format' and 'tools' exclude."),
        ("'max_completion_tokens' is 1.", "'max_output_tokens' is 1."),
        ("These messages stay.", "These messages stay."),
        ("'messages_of' stays.", "'messages_of' stays."),
    ],
)
def test_an_error_of_the_chat_is_said_in_words_of_a_response(message: str, said: str) -> None:
    error = GatewayError("invalid_value", message, param="messages[0]", detail_code="d")
    told = in_words_of_a_response(error)
    assert (told.message, told.param, told.detail_code) == (said, "input", "d")


def test_more_calls_than_a_message_may_have_are_refused() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    with pytest.raises(GatewayError) as caught:
        parse_response_request(json.dumps({"model": "m", "input": [call] * 200}).encode())
    assert (caught.value.code, caught.value.param) == ("invalid_value", "input")
    assert "'input'" in caught.value.message


def test_what_the_worker_gets_is_what_was_asked() -> None:
    body = {
        "model": "m",
        "input": "x",
        "text": NUMBER,
        "tools": [{**TOOL, "parameters": {"enum": [None]}}],
        "store": False,
    }
    request, chat = parse_response_request(json.dumps(body).encode())
    assert parse_response_request(response_inner_body(request)) == (request, chat)
    assert chat.offered_tools[0].function.strict


def test_an_error_of_the_gateway_is_the_next_event() -> None:
    event = ResponseReader().error_event("upstream_truncated", "It ended.", None)
    name, data, *_ = event.decode().split("\n")
    assert name == "event: error"
    value = json.loads(data.removeprefix("data: "))
    assert (value["type"], value["sequence_number"], value["code"]) == (
        "error",
        0,
        "upstream_truncated",
    )
    assert value["error"]["code"] == "upstream_truncated"
