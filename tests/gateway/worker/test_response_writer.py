"""Do the events of a response build the response that is told whole?"""

import json
from typing import Any

import pytest

from gateway import sse
from gateway.problems import GatewayError
from gateway.worker.job import WrittenAnswer
from gateway.worker.obfuscation import random_filler
from gateway.worker.outcome import Usage
from gateway.worker.response_writer import ResponseWriter
from gateway.worker.spelling import TokenSpelling
from runtime import TokenLogprobs

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
USAGE = Usage(prompt_tokens=5, cached_tokens=2, output_tokens=7)
LOGPROB = TokenLogprobs(token_id=0, logprob=-0.5, top=())
Json = dict[str, Any]


def writer() -> ResponseWriter:
    return ResponseWriter(
        request_id="r",
        created_s=3,
        asked={"model": "m"},
        spelling=TokenSpelling(token_bytes=[b"a"], eos_token_ids=frozenset()),
        tool_names={"f"},
        filler=None,
    )


def events_of(data: bytes) -> list[Json]:
    return [json.loads(sse.event_data(event)) for event in sse.EventSplitter().feed(data)]


def streamed(text: str, reason: str = "stop") -> list[Json]:
    one = writer()
    data = one.start() + b"".join(one.delta(0, char, ()) for char in text)
    return events_of(data + one.finish(0, reason) + one.end(USAGE))


def whole(text: str, reason: str = "stop") -> Json:
    answer = WrittenAnswer(text=text, reason=reason, logprobs=())
    return dict(writer().whole([answer], USAGE))


@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize("text", ["", "hello", f"So: {CALL}\n{CALL} Done.", CALL, f"{CALL[:-25]}"])
def test_what_is_streamed_is_what_is_told_whole(text: str, reason: str) -> None:
    *events, last = streamed(text, reason)
    assert last["response"] == whole(text, reason)
    assert last["type"] == ("response.incomplete" if reason == "length" else "response.completed")
    assert [event["sequence_number"] for event in [*events, last]] == list(range(len(events) + 1))
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == last["response"]["output"]
    for at, item in enumerate(done):
        mine = [e for e in events if e.get("output_index") == at]
        told = "".join(e["delta"] for e in mine if e["type"].endswith(".delta"))
        assert told == (item.get("arguments") or item.get("content", [{"text": ""}])[0]["text"])


def test_items_follow_each_other() -> None:
    kinds = [item["type"] for item in whole(f"So: {CALL}\n{CALL} Done.")["output"]]
    assert kinds == ["message", "function_call", "function_call", "message"]


def test_only_the_last_item_is_cut_short() -> None:
    items = whole(f"So: {CALL}{CALL[:-25]}", "length")["output"]
    assert [item["status"] for item in items] == ["completed", "completed", "incomplete"]


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    (item,) = whole("")["output"]
    assert item["content"] == [
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    ]


def test_log_probabilities_belong_to_the_text() -> None:
    one = writer()
    (delta,) = [e for e in events_of(one.delta(0, "a", [LOGPROB])) if "delta" in e]
    assert [entry["token"] for entry in delta["logprobs"]] == ["a"]
    (done, *_) = events_of(one.finish(0, "stop"))
    assert done["logprobs"] == delta["logprobs"]


def test_deltas_are_filled_up() -> None:
    one = ResponseWriter(
        request_id="r",
        created_s=3,
        asked={},
        spelling=TokenSpelling(token_bytes=[], eos_token_ids=frozenset()),
        tool_names=(),
        filler=random_filler(bytes),
    )
    one.delta(0, "begun", ())
    one._num_events = 100  # numbers of events have lengths too
    sizes = {len(one.delta(0, "x" * length, ())) for length in range(1, 20)}
    assert len(sizes) == 1


def test_an_error_is_numbered_like_the_events_before() -> None:
    one = writer()
    one.start()
    (event,) = events_of(one.error(GatewayError("generation_failed", "It failed.")))
    assert (event["sequence_number"], event["error"]["code"]) == (2, "generation_failed")
