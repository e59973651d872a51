"""What do answers say to the gateway on the way past, and what of them is not believed?"""

import json
from typing import Any

import pytest

from gateway.calls import MALFORMED, AnswerReader, EventUse
from gateway.chat_call import chat_reader
from gateway.completion_call import completion_call
from gateway.facts import RequestFacts
from gateway.response_call import ResponseReader
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
    "data", [b"x", b"1", b"[]", b"{}", b'{"choices": 3}', b'{"type": "response.completed"}']
)
def test_nonsense_is_told_from_answers(reader: AnswerReader, data: bytes) -> None:
    with pytest.raises(MALFORMED):
        reader.read_event(data, facts(), now_ns=1)
    with pytest.raises(MALFORMED):
        reader.read_whole(data, facts())
