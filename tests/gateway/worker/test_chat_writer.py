"""Do the objects of a chat completion say what the engine did, answer by answer?"""

import json
from collections.abc import Collection
from typing import Any

import pytest

from gateway import sse
from gateway.worker.chat_writer import ChatWriter
from gateway.worker.job import WrittenAnswer
from gateway.worker.obfuscation import BUCKET_BYTES, Filler, random_filler
from gateway.worker.outcome import Usage
from gateway.worker.spelling import TokenSpelling
from runtime import TokenLogprobs

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
USAGE = Usage(prompt_tokens=5, cached_tokens=2, output_tokens=7)
LOGPROB = TokenLogprobs(token_id=1, logprob=-0.5, top=((0, -0.1),))


def writer(
    *,
    num_answers: int = 1,
    tool_names: Collection[str] = (),
    filler: Filler | None = None,
    tells_usage: bool = True,
) -> ChatWriter:
    return ChatWriter(
        request_id="r",
        created_s=3,
        model="m",
        num_answers=num_answers,
        spelling=TokenSpelling(token_bytes=[b"\xff", b"a"], eos_token_ids=frozenset()),
        tool_names=tool_names,
        filler=filler,
        tells_usage=tells_usage,
    )


def choices(data: bytes) -> list[dict[str, Any]]:
    events = [sse.event_data(event) for event in sse.EventSplitter().feed(data)]
    return [json.loads(event)["choices"][0] for event in events]


def answer(text: str, reason: str = "stop") -> WrittenAnswer:
    return WrittenAnswer(text=text, reason=reason, logprobs=())


def test_each_answer_has_its_index() -> None:
    two = writer(num_answers=2)
    assert [choice["index"] for choice in choices(two.start())] == [0, 1]
    (second,) = choices(two.delta(1, "b", ()))
    assert second == {"index": 1, "delta": {"content": "b"}, "finish_reason": None}
    whole = two.whole([answer("a"), answer("b", "length")], USAGE)
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["a", "b"]
    assert whole["usage"]["total_tokens"] == 12


def test_a_call_is_the_same_whole_and_streamed() -> None:
    whole = writer(tool_names={"f"}).whole([answer(f"So: {CALL}")], USAGE)["choices"][0]
    assert whole["message"]["content"] == "So:"
    (call,) = whole["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert whole["finish_reason"] == "tool_calls"

    one = writer(tool_names={"f"})
    deltas = [choice for char in f"So: {CALL}" for choice in choices(one.delta(0, char, ()))]
    *rest, finish = choices(one.finish(0, "stop"))
    assert (rest, finish["finish_reason"]) == ([], "tool_calls")
    calls = [c["delta"]["tool_calls"][0] for c in deltas if "tool_calls" in c["delta"]]
    assert "".join(c["delta"].get("content", "") for c in deltas) == "So:"
    assert (calls[0]["id"], calls[0]["function"]["name"]) == (call["id"], "f")
    assert "".join(c["function"]["arguments"] for c in calls) == '{"a": 1}'


def test_content_is_null_where_there_are_only_calls() -> None:
    message = writer(tool_names={"f"}).whole([answer(CALL)], USAGE)["choices"][0]["message"]
    assert message["content"] is None


def test_without_tools_tags_are_text() -> None:
    choice = writer().whole([answer(CALL)], USAGE)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")


def test_an_answer_cut_short_in_a_call_says_so() -> None:
    one = writer(tool_names={"f"})
    one.delta(0, CALL[:-20], ())
    assert choices(one.finish(0, "length"))[-1]["finish_reason"] == "length"


def test_text_held_back_comes_with_the_finish() -> None:
    one = writer(tool_names={"f"})
    assert one.delta(0, "<tool", ()) == b""
    held, finish = choices(one.finish(0, "stop"))
    assert held["delta"] == {"content": "<tool"}
    assert finish["finish_reason"] == "stop"


def test_log_probabilities_of_held_text_are_told_at_once() -> None:
    (choice,) = choices(writer(tool_names={"f"}).delta(0, "<", [LOGPROB]))
    assert choice["delta"] == {"content": ""}
    (entry,) = choice["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("a", [97])
    assert entry["top_logprobs"][0]["bytes"] == [255]


@pytest.mark.parametrize("filler", [None, random_filler(bytes)])
@pytest.mark.parametrize("text", ["b", "", '"\\\n\x00', "\u00fc\U0001f30a", "\ud800"])
def test_plain_text_is_written_as_text_beside_calls_is(text: str, filler: Filler | None) -> None:
    beside_calls = writer(tool_names={"f"}, filler=filler).delta(0, text, ())
    assert writer(filler=filler).delta(0, text, ()) == beside_calls


def test_deltas_of_many_lengths_have_few_sizes() -> None:
    filled = writer(filler=random_filler(bytes))
    sizes = {len(filled.delta(0, "x" * length, ())) for length in range(1, BUCKET_BYTES)}
    assert len(sizes) <= 2
    bare = writer()
    assert len({len(bare.delta(0, "x" * length, ())) for length in range(1, 32)}) == 31
    assert b"obfuscation" not in filled.finish(0, "stop")


def test_usage_is_told_where_it_is_asked() -> None:
    assert b'"prompt_tokens":5' in writer().end(USAGE)
    assert writer(tells_usage=False).end(USAGE) == sse.DONE
