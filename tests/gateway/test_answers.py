"""Several answers to one request: do they run side by side, and end together when one must?"""

import time
from collections.abc import Iterator

import pytest

from tests.gateway.support import HashEngine, Stack, error_of, events_of, running_stack, wait_until


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(
        tmp_path_factory.mktemp("answers"), engine=HashEngine(max_waiting=8)
    ) as stack:
        yield stack


def test_whole_answers(stack: Stack) -> None:
    answer = stack.chat(n=3, seed=5, temperature=1, ignore_eos=True).json()
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert answer["usage"]["prompt_tokens"] == len("uhello")
    assert answer["usage"]["completion_tokens"] == 3 * 8
    alone = stack.chat(seed=5, temperature=1, ignore_eos=True).json()
    assert alone["choices"][0]["message"]["content"] == texts[0]
    second = stack.chat(seed=6, temperature=1, ignore_eos=True).json()
    assert second["choices"][0]["message"]["content"] == texts[1]


def test_streamed_answers_equal_whole_ones(stack: Stack) -> None:
    asked = {"n": 3, "seed": 5, "temperature": 1}
    whole = stack.chat(**asked).json()
    events = events_of(stack.chat(**asked, stream=True, stream_options={"include_usage": True}))
    *chunks, usage = events
    texts, reasons = ["", "", ""], ["", "", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        reasons[choice["index"]] += choice["finish_reason"] or ""
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
    assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_deltas_are_filled_up_unless_it_is_declined(stack: Stack) -> None:
    plain = events_of(stack.chat(stream=True, stream_options={"include_obfuscation": False}))
    assert not any("obfuscation" in event for event in plain)
    assert any("obfuscation" in event for event in events_of(stack.chat(stream=True)))


@pytest.mark.parametrize("stream", [False, True])
def test_when_one_has_no_place_none_goes_on(stack: Stack, stream: bool) -> None:
    refused = stack.chat(n=16, stream=stream, max_tokens=200, ignore_eos=True)
    assert (refused.status_code, error_of(refused)["code"]) == (503, "overloaded")
    wait_until(lambda: stack.worker_stats()["open"] == 0)
    assert stack.chat().status_code == 200


def test_leaving_ends_them_all(stack: Stack) -> None:
    stack.engine.runner.before_run = lambda _plan: time.sleep(0.02)
    body = {"model": "hash", "messages": [{"role": "user", "content": "x"}], "n": 3}
    body |= {"stream": True, "max_tokens": 200, "ignore_eos": True}
    with stack.client.stream("POST", "/v1/chat/completions", json=body) as response:
        pieces = response.iter_bytes()
        next(pieces)
        wait_until(lambda: stack.worker_stats()["open"] == 3)
    wait_until(lambda: stack.worker_stats()["open"] == 0)
    stack.engine.runner.before_run = lambda _plan: None
