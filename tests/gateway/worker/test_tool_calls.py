"""Are calls found in an answer's text, however it is cut, and is everything else left as text?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.worker.chat_writer import calls_in, said
from gateway.worker.tool_calls import MAX_HEAD_CHARS, CallBegun, Piece, ToolCallParser

NAMES = frozenset({"look_up", "add"})
ONE = '<tool_call>\n{"name": "look_up", "arguments": {"word": "a}<b\\"{"}}\n</tool_call>'
TWO = '<tool_call>\n{"name": "add", "arguments": {"a": [1, {"b": 2}]}}\n</tool_call>'


def read(*texts: str) -> tuple[str, list[tuple[str, str]]]:
    parser = ToolCallParser(NAMES)
    pieces: list[Piece] = [piece for text in texts for piece in parser.feed(text)]
    pieces += parser.flush()
    calls = calls_in(pieces)
    assert len(calls) == parser.num_calls
    return said(pieces), calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("", [])),
        ("no call\n", ("no call\n", [])),
        ("1 < 2 <tool", ("1 < 2 <tool", [])),
        (ONE, ("", [("look_up", '{"word": "a}<b\\"{"}')])),
        (
            f"Wait.\n{ONE}\n{TWO}\n",
            ("Wait.", [("look_up", '{"word": "a}<b\\"{"}'), ("add", '{"a": [1, {"b": 2}]}')]),
        ),
        (f"{TWO} and then", (" and then", [("add", '{"a": [1, {"b": 2}]}')])),
        (
            '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>',
            ("", [("add", '{"a": 1}')]),
        ),
        ('<tool_call>{"name": "add"}</tool_call>', ("", [("add", "{}")])),
        ('<tool_call>{"name": "add", "parameters": {}}</tool_call>', ("", [("add", "{}")])),
        (
            '<tool_call>[{"name": "add"}, {"name": "look_up", "arguments": "x"}]</tool_call>',
            ("", [("add", "{}"), ("look_up", "x")]),
        ),
    ],
    ids=str,
)
def test_what_is_a_call(text: str, expected: tuple[str, list[tuple[str, str]]]) -> None:
    assert read(text) == expected
    assert read(*text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>\n{"name": "rm", "arguments": {"a": 1}}\n</tool_call> then',
        "<tool_call>not JSON</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>" + "[" * 5000 + "</tool_call>",
        '<tool_call>[{"name": "add"}, {"name": "rm"}]</tool_call>',
        '<tool_call>{"name": "add", "argu',
        "<tool_call>" + "x" * (MAX_HEAD_CHARS + 1),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_none_stays_text(text: str) -> None:
    assert read(text) == (text, [])
    assert read(*text) == (text, [])


def test_a_call_that_was_cut_short_keeps_what_there_is() -> None:
    assert read('<tool_call>{"name": "add", "arguments": {"a": 1') == ("", [("add", '{"a": 1')])


def test_arguments_that_never_end_end_with_their_tag() -> None:
    broken = '<tool_call>{"name": "add", "arguments": {"a": 1</tool_call>'
    assert read(broken + TWO) == ("", [("add", '{"a": 1'), ("add", '{"a": [1, {"b": 2}]}')])


def test_arguments_are_passed_on_while_they_are_written() -> None:
    parser = ToolCallParser(NAMES)
    assert parser.feed('<tool_call>{"name": "add", "arguments": ') == []
    begun, _ = parser.feed('{"a": ')
    assert begun == CallBegun(0, "add")
    assert calls_in([begun, *parser.feed("12")]) == [("add", "12")]


pieces_of_text = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            '{"name": "add", "arguments": ',
            "{",
            "}",
            '"',
            " ",
            "\n",
            "a",
            "<",
            "\\",
        ]
    ),
    max_size=12,
)


@given(pieces_of_text, st.data())
def test_how_it_is_cut_changes_nothing(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    at = data.draw(st.integers(0, len(text)))
    assert read(text) == read(text[:at], text[at:]) == read(*text)


@given(st.text(max_size=40))
def test_any_arguments_survive(word: str) -> None:
    call = json.dumps({"name": "look_up", "arguments": {"word": word}}, ensure_ascii=False)
    _, [(name, arguments)] = read(f"<tool_call>\n{call}\n</tool_call>")
    assert (name, json.loads(arguments)) == ("look_up", {"word": word})
