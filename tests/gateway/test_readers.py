"""What do answers say to the gateway on the way past, and what of them is not believed?"""

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import sse
from gateway.calls import MALFORMED, AnswerReader, EventUse
from gateway.chat_call import chat_reader
from gateway.completion_call import completion_call
from gateway.facts import RequestFacts
from gateway.response_call import ResponseReader
from gateway.worker.chat_writer import ChatWriter
from gateway.worker.obfuscation import Filler, random_filler
from gateway.worker.spelling import TokenSpelling
from telemetry.timeline import RequestTimeline

USAGE = {"prompt_tokens": 5, "completion_tokens": 3}
RESPONSE = {
    "status": "completed",
    "output": [],
    "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 3},
}


def facts() -> RequestFacts:
    timeline = RequestTimeline(arrived_ns=1, wall_anchor_ns=1)
    return RequestFacts(request_id="r", timeline=timeline, route="/v1/x")


def read(reader: AnswerReader, known: RequestFacts, value: Any) -> EventUse:
    return reader.read_event(json.dumps(value).encode(), known, now_ns=7)


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("delta", "num_chunks"),
    [
        ({"role": "assistant", "content": ""}, 0),
        ({}, 0),
        ({"content": "a"}, 1),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, 1),
        ({"reasoning_content": "hm"}, 1),
    ],
    ids=str,
)
def test_what_counts_as_text(delta: dict[str, Any], num_chunks: int) -> None:
    known = facts()
    assert read(chat_reader(wants_usage=False), known, chunk(**delta)) is EventUse.PASS
    assert len(known.timeline.chunks) == num_chunks


def plain(text: str, *, filler: Filler | None = None) -> bytes:
    """The data of an event with text, as our own workers write it."""
    writer = ChatWriter(
        request_id="0aF",
        created_s=1_800_000_000,
        model="a/b-1.5:c",
        num_answers=1,
        spelling=TokenSpelling(token_bytes=[b"a"], eos_token_ids=frozenset()),
        tool_names=(),
        filler=filler,
        tells_usage=True,
    )
    return sse.event_data(writer.delta(0, text, ()))


@given(st.text(min_size=1, max_size=30), st.sampled_from([None, random_filler(os.urandom)]))
def test_plain_text_is_known_without_parsing(text: str, filler: Filler | None) -> None:
    reader, parsed, known = chat_reader(wants_usage=False), facts(), facts()
    data = plain(text, filler=filler)
    assert reader.plain_text is not None
    assert reader.plain_text.fullmatch(data)
    assert reader.read_event(data, known, now_ns=7) is EventUse.PASS
    slow = replace(reader, plain_text=None)
    assert slow.read_event(data, parsed, now_ns=7) is EventUse.PASS
    assert known == parsed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"x"', b'""'),
        (b'"x"', b'"\\x"'),
        (b'"x"', b'"\\u12"'),
        (b'"x"', b'"\n"'),
        (b'"x"', b'"\xc3\xbc"'),
        (b'"x"', b'"x","tool_calls":[]'),
        (b'"x"', b"1"),
        (b"null", b'"stop"'),
        (b"}]}", b'}],"usage":{}}'),
        (b"}]}", b'}],"error":{}}'),
        (b"}]}", b"}]}}"),
        (b"}]}", b"}]}\n"),
        (b'"id"', b'"id":"a","id"'),
    ],
)
def test_anything_else_is_parsed(old: bytes, new: bytes) -> None:
    pattern, data = chat_reader(wants_usage=False).plain_text, plain("x")
    assert pattern is not None
    assert data.count(old) == 1
    assert pattern.fullmatch(data)
    assert not pattern.fullmatch(data.replace(old, new))


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}, {"cached_tokens": 4}])
def test_usage_may_lack_what_is_cached(details: Any) -> None:
    known = facts()
    usage = USAGE if details is None else {**USAGE, "prompt_tokens_details": details}
    told: dict[str, Any] = {"choices": [], "usage": usage}
    assert read(chat_reader(wants_usage=False), known, told) is EventUse.DROP
    assert read(chat_reader(wants_usage=True), known, told) is EventUse.PASS
    cached = (details or {}).get("cached_tokens") or 0
    assert (known.timeline.cached_tokens, known.timeline.output_tokens) == (cached, 3)


def test_a_completion_is_read_by_its_text() -> None:
    call = completion_call({"model": "m", "prompt": ["a", "b"], "n": 2, "stream": True})
    known = facts()
    told = {"choices": [{"text": "a", "index": 3, "finish_reason": "stop"}]}
    assert read(call.reader, known, told) is EventUse.PASS
    assert (known.finish_reason, len(known.timeline.chunks)) == ("stop", 1)
    assert (call.num_choices, call.max_tokens) == (4, 16)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "stop"),
        ({"status": "incomplete"}, "length"),
        ({"output": [{"type": "message"}, {"type": "function_call"}]}, "tool_calls"),
    ],
    ids=str,
)
def test_the_last_event_of_a_response_is_all_of_it(changes: dict[str, Any], reason: str) -> None:
    known, whole = facts(), {**RESPONSE, **changes}
    end = {"type": f"response.{whole['status']}", "sequence_number": 4, "response": whole}
    assert read(ResponseReader(), known, end) is EventUse.END
    assert (known.finish_reason, known.timeline.cached_tokens) == (reason, 2)
    again = facts()
    ResponseReader().read_whole(json.dumps(whole).encode(), again)
    assert again.finish_reason == reason


@pytest.mark.parametrize(
    ("code", "told"), [("overloaded", "overloaded"), ("server_is_on_fire", "upstream_error")]
)
def test_a_failed_response_ends_with_a_code_of_ours(code: str, told: str) -> None:
    for event, use in (
        ({"type": "response.failed", "response": {"error": {"code": code}}}, EventUse.END),
        ({"type": "error", "code": code}, EventUse.PASS),
    ):
        known = facts()
        assert read(ResponseReader(), known, {"sequence_number": 1, **event}) is use
        assert known.error_code == told


@pytest.mark.parametrize("reader", [chat_reader(wants_usage=True), ResponseReader()])
@pytest.mark.parametrize(
    "data",
    [
        *(b"x", b"1", b"[]", b"{}", b'{"choices": 3}', b'{"type": "response.completed"}'),
        *(b"[" * 100_000, b'{"a":' * 100_000),
        plain("a").replace(b'"index":0', b'"index":00'),
        plain("a").replace(b'"created":1', b'"created":01'),
    ],
    ids=lambda data: data[-60:],
)
def test_nonsense_is_told_from_answers(reader: AnswerReader, data: bytes) -> None:
    with pytest.raises(MALFORMED):
        reader.read_event(data, facts(), now_ns=1)
    with pytest.raises(MALFORMED):
        reader.read_whole(data, facts())


@pytest.mark.parametrize(
    "count", [b"-1", b"1e999", b"NaN", b"1.5", b'"3"', b"true", b"99999999999"]
)
def test_what_is_no_number_of_tokens_is_never_charged(count: bytes) -> None:
    response = json.dumps(
        {"type": "response.completed", "sequence_number": 1, "response": RESPONSE}
    )
    for reader, data in (
        (chat_reader(wants_usage=True), json.dumps({"choices": [], "usage": USAGE})),
        (ResponseReader(), response),
    ):
        for number in (b": 5", b": 3"):
            known = facts()
            with pytest.raises(MALFORMED):
                reader.read_event(data.encode().replace(number, b": " + count), known, now_ns=1)
            assert not known.has_usage
