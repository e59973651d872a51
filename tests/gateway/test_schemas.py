"""Which chat requests are refused, with which code and at which parameter?"""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.problems import GatewayError
from gateway.schemas import ChatRequest, inner_body, parse_chat_request
from gateway.schemas.messages import PromptMessage
from gateway.schemas.wire import MAX_DEPTH

CANARY = "canary-6f1d"
USER = {"role": "user", "content": CANARY}


def parse(**members: Any) -> ChatRequest:
    return parse_chat_request(json.dumps({"model": "m", "messages": [USER], **members}).encode())


def refusal(body: bytes) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        parse_chat_request(body)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nul", b'{"model": NaN}', b"\xff", b"[" * 100_000, b'{"a":1}x'],
    ids=["empty", "open", "word", "nan", "not-utf8", "deep", "tail"],
)
def test_not_json(body: bytes) -> None:
    assert refusal(body).code == "invalid_json"


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"model": 3}, "invalid_type", "model"),
        ({"model": ""}, "invalid_value", "model"),
        ({"messages": "hi"}, "invalid_type", "messages"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": [3]}, "invalid_type", "messages[0]"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "invalid_type", "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_type", "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "invalid_value", "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "invalid_value", "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": "x", "name": "n"}]},
            "unsupported_parameter",
            "messages[0].name",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "unsupported_parameter",
            "messages[0].content[0].type",
        ),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": "5"}, "invalid_type", "max_tokens"),
        ({"max_tokens": True}, "invalid_type", "max_tokens"),
        ({"max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
        ({"temperature": 2.5}, "invalid_value", "temperature"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"top_k": -1}, "invalid_value", "top_k"),
        ({"seed": 1.5}, "invalid_type", "seed"),
        ({"seed": 1 << 63}, "invalid_value", "seed"),
        ({"stop": ["a"] * 5}, "invalid_value", "stop"),
        ({"stop": [""]}, "invalid_value", "stop[0]"),
        ({"stop": 3}, "invalid_type", "stop"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"stream_options": {"x": 1}}, "unsupported_parameter", "stream_options.x"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"tool_choice": {"type": "custom"}}, "unsupported_parameter", "tool_choice.type"),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "no"}}},
            "invalid_value",
            "tool_choice.allowed_tools.mode",
        ),
        ({"n": 17}, "invalid_value", "n"),
        ({"n": True}, "invalid_type", "n"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
        ({"logprobs": 1}, "invalid_type", "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"response_format": "json"}, "invalid_type", "response_format"),
        ({"response_format": {}}, "missing_required_parameter", "response_format.type"),
        ({"response_format": {"type": "xml"}}, "unsupported_parameter", "response_format.type"),
        (
            {"response_format": {"type": "json_schema"}},
            "missing_required_parameter",
            "response_format.json_schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "missing_required_parameter",
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "", "schema": {}}}},
            "invalid_value",
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            "invalid_value",
            "guided_regex",
        ),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "invalid_value", "guided_regex"),
        ({"guided_choice": []}, "invalid_value", "guided_choice"),
        ({"guided_choice": ["a", ""]}, "invalid_value", "guided_choice[1]"),
        ({"guided_regex": "\ud800"}, "invalid_value", "guided_regex"),
        ({"min_p": 1.5}, "invalid_value", "min_p"),
        ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
        ({"repetition_penalty": 1e-37}, "invalid_value", "repetition_penalty"),
        ({"cache_salt": "mine"}, "unsupported_parameter", "cache_salt"),
        ({"frequency_penalty": 2.5}, "invalid_value", "frequency_penalty"),
        ({"logit_bias": {"5": 101}}, "invalid_value", "logit_bias.5"),
        ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias.x"),
        ({"logit_bias": {"[key]": 1}}, "invalid_value", "logit_bias.[key]"),
        ({"stream_options": {"[key]": 1}}, "unsupported_parameter", "stream_options.[key]"),
    ],
    ids=str,
)
def test_refusals(members: dict[str, Any], code: str, param: str) -> None:
    error = refusal(json.dumps({"model": "m", "messages": [USER], **members}).encode())
    assert (error.code, error.param) == (code, param)
    assert CANARY not in str(error)
    assert CANARY not in repr(error.__context__)


@pytest.mark.parametrize("member", ["stream_options", "logit_bias", "response_format", "tools"])
def test_a_refusal_does_not_speak_of_python(member: str) -> None:
    error = refusal(json.dumps({"model": "m", "messages": [USER], member: 1}).encode())
    assert error.code == "invalid_type"
    assert "should be an " in error.message
    assert not re.search("dict|list|instance|attributes", error.message)


@pytest.mark.parametrize("number", ["1e400", "-1e999", "9" * 309, "9" * 5000])
def test_numbers_that_no_double_holds_are_no_json_here(number: str) -> None:
    assert refusal(f'{{"user": {number}}}'.encode()).code == "invalid_json"


def test_numbers_are_what_they_say_however_they_are_written() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2.0, "top_k": 1e1}'
    request = parse_chat_request(body)
    assert (request.num_answers, request.top_k) == (2, 10)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deeply(opening: str, closing: str) -> None:
    def body(depth: int) -> bytes:
        nested = opening * depth + "1" + closing * depth
        return json.dumps({"model": "m", "messages": [USER]}).encode()[:-1] + (
            f', "user": {nested}}}'.encode()
        )

    assert parse_chat_request(body(MAX_DEPTH - 1)).model == "m"
    assert refusal(body(MAX_DEPTH)).code == "invalid_value"
    assert refusal(body(10_000)).code == "invalid_json"


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_missing(missing: str) -> None:
    members = {"model": "m", "messages": [USER]}
    del members[missing]
    error = refusal(json.dumps(members).encode())
    assert (error.code, error.param) == ("missing_required_parameter", missing)


def test_values_that_ask_for_nothing_are_accepted() -> None:
    request = parse(
        n=1,
        logprobs=False,
        tools=[],
        response_format={"type": "text"},
        frequency_penalty=0.0,
        user="someone",
        temperature=None,
    )
    asked = {"model", "messages", "logprobs", "response_format", "frequency_penalty", "n", "tools"}
    assert set(json.loads(inner_body(request))) == asked


def test_content_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(messages=[{"role": "developer", "content": parts}])
    message = request.messages[0]
    assert isinstance(message, PromptMessage)
    assert (message.text(), message.template_role()) == ("ab", "system")


def test_the_newer_limit_wins() -> None:
    assert parse(max_tokens=3).output_token_limit == 3
    assert parse(max_tokens=3, max_completion_tokens=5).output_token_limit == 5
    assert parse().output_token_limit is None


def test_a_streamed_inner_request_always_reports_usage() -> None:
    for options in ({}, {"stream_options": {"include_usage": False}}):
        inner = parse_chat_request(inner_body(parse(stream=True, **options)))
        assert inner.wants_usage_chunk


def test_repr_shows_no_message() -> None:
    assert CANARY not in repr(parse(stop=CANARY))


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(body: bytes) -> None:
    with pytest.raises(GatewayError) as caught:  # never a valid request: that needs 40 right bytes
        parse_chat_request(body)
    assert caught.value.status == 400


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_text_survives_the_way_to_the_worker(text: str) -> None:
    request = parse(messages=[{"role": "user", "content": text}])
    assert parse_chat_request(inner_body(request)).messages[0].text() == text


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a\udfff"}]}]},
            "messages[0].content[0].text",
        ),
        ({"stop": "\ud800"}, "stop"),
        ({"model": "\ud800"}, "model"),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"\ud800": 1}}}
                ]
            },
            "tools[0].function.parameters",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"enum": ["\udfff"]}},
                }
            },
            "response_format.json_schema.schema",
        ),
    ],
)
def test_half_a_surrogate_pair_is_refused(members: dict[str, Any], param: str) -> None:
    body = json.dumps({"model": "m", "messages": [USER], **members}).encode()
    error = refusal(body)
    assert error.code.startswith("invalid_")
    assert error.param == param


def test_a_whole_surrogate_pair_is_a_character() -> None:
    request = parse(messages=[{"role": "user", "content": "\U0001f600"}])  # dumped as two escapes
    assert "\U0001f600" in inner_body(request).decode()


def test_a_schema_reaches_the_worker_as_it_was_sent() -> None:
    schema = {"enum": [None, 1, 1.5, "é"], "x": {"const": None}, "$defs": {"schema": {}}}
    wanted = {"name": "n", "schema": schema, "strict": True}
    request = parse(response_format={"type": "json_schema", "json_schema": wanted})
    inner = json.loads(inner_body(request))
    assert inner["response_format"] == {"type": "json_schema", "json_schema": wanted}
    assert parse_chat_request(inner_body(request)) == request


def test_what_constrains_an_answer_is_not_shown() -> None:
    assert CANARY not in repr(parse(guided_regex=CANARY))
    assert CANARY not in repr(parse(guided_choice=[CANARY]))
    wanted = {"name": "n", "schema": {"const": CANARY}}
    assert CANARY not in repr(parse(response_format={"type": "json_schema", "json_schema": wanted}))


@pytest.mark.parametrize("token_id", ["-1", "01", "1.0", "x", "1" * 10, CANARY])
def test_a_bias_names_token_ids(token_id: str) -> None:
    body = {"model": "m", "messages": [USER], "logit_bias": {token_id: 1}}
    error = refusal(json.dumps(body).encode())
    assert error.code == "invalid_value"
    assert parse(logit_bias={"0": -100, "49151": 0.5}).logit_bias == {"0": -100, "49151": 0.5}
