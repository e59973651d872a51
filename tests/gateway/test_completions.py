"""Are plain completions answered as OpenAI's older endpoint does, by the unmodified client?"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from gateway.calls import MAX_ANSWER_BYTES
from gateway.problems import GatewayError
from gateway.schemas.completions import completion_inner_body, parse_completion_request
from gateway.worker import service
from tests.gateway.support import MODEL, Stack, error_of, events_of, running_stack

Json = dict[str, Any]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("completions")) as stack:
        yield stack


def ask(stack: Stack, **members: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "hello", "ignore_eos": True, "temperature": 0, **members}
    return stack.client.post("/v1/completions", json=body)


def texts_of(response: httpx.Response) -> list[str]:
    return [choice["text"] for choice in response.json()["choices"]]


def test_a_whole_completion(stack: Stack) -> None:
    response = ask(stack)
    answer = response.json()
    assert (answer["object"], answer["id"][:5]) == ("text_completion", "cmpl-")
    assert answer["usage"]["prompt_tokens"] == len("hello")
    assert answer["usage"]["completion_tokens"] == 16  # OpenAI's default
    (choice,) = answer["choices"]
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "length")


def test_streamed_equals_whole(stack: Stack) -> None:
    asked: Json = {"prompt": ["a", "bb"], "n": 2, "seed": 3, "temperature": 1, "max_tokens": 6}
    whole = ask(stack, **asked)
    events = events_of(ask(stack, **asked, stream=True, stream_options={"include_usage": True}))
    texts = [""] * 4
    for event in events[:-1]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == texts_of(whole)
    assert events[-1]["usage"] == whole.json()["usage"]
    assert whole.json()["usage"]["prompt_tokens"] == 3  # each prompt once
    assert texts_of(ask(stack, **{**asked, "prompt": "bb"})) == texts[2:]


def test_token_ids_are_prompts(stack: Stack) -> None:
    ids = [1 + ord(char) % 11 for char in "hello"]  # as the test's tokenizer does
    assert texts_of(ask(stack, prompt=ids)) == texts_of(ask(stack))
    assert texts_of(ask(stack, prompt=[ids, ids])) == texts_of(ask(stack)) * 2


def test_echo(stack: Stack) -> None:
    (plain,), (echoed,) = texts_of(ask(stack)), texts_of(ask(stack, echo=True))
    assert echoed == "hello" + plain
    events = events_of(ask(stack, echo=True, stream=True))
    assert "".join(event["choices"][0]["text"] for event in events) == echoed


def test_log_probabilities(stack: Stack) -> None:
    (choice,) = ask(stack, logprobs=2, max_tokens=4).json()["choices"]
    found = choice["logprobs"]
    assert {len(found[name]) for name in found} == {4}
    assert found["text_offset"][0] == 0
    assert found["text_offset"][-1] + len(found["tokens"][-1]) == len(choice["text"])
    assert all(len(top) == 2 for top in found["top_logprobs"])
    events = events_of(ask(stack, logprobs=2, max_tokens=4, stream=True))
    streamed = [e["choices"][0]["logprobs"] for e in events if e["choices"][0]["logprobs"]]
    assert [offset for one in streamed for offset in one["text_offset"]] == found["text_offset"]


@pytest.mark.parametrize(("stream", "num_tokens"), [(False, 2), (True, 4)])
def test_log_probabilities_that_no_answer_holds_end_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, stream: bool, num_tokens: int
) -> None:
    """A stream never holds it all."""
    monkeypatch.setattr(service, "LOGPROB_BYTES", MAX_ANSWER_BYTES // 12)
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = ask(stack, logprobs=2, n=2, max_tokens=4, stream=stream, **options)
    usage = events_of(answer)[-1]["usage"] if stream else answer.json()["usage"]
    assert usage["completion_tokens"] == 2 * num_tokens


def test_the_openai_client(stack: Stack) -> None:
    client = stack.openai
    stream = client.completions.create(model=MODEL, prompt="hello", stream=True, temperature=0)
    assert "".join(chunk.choices[0].text for chunk in stream)
    whole = client.completions.create(model=MODEL, prompt="hello", temperature=0)
    assert whole.usage is not None
    with pytest.raises(openai.BadRequestError, match="best_of"):
        client.completions.create(model=MODEL, prompt="hello", best_of=4)


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": ""}, "invalid_value", "prompt"),
        ({"prompt": None}, "invalid_type", "prompt"),
        ({"prompt": [[1], "a"]}, "invalid_type", "prompt[0]"),
        ({"prompt": "\ud800"}, "invalid_value", "prompt"),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"best_of": 2}, "unsupported_parameter", "best_of"),
        ({"echo": True, "logprobs": 1}, "unsupported_parameter", "echo"),
        ({"prompt": ["a"] * 33, "n": 2}, "invalid_value", "n"),
        ({"logprobs": True}, "invalid_type", "logprobs"),
        ({"messages": []}, "unsupported_parameter", "messages"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "invalid_value", "guided_regex"),
    ],
    ids=str,
)
def test_refusals(members: Json, code: str, param: str) -> None:
    with pytest.raises(GatewayError) as caught:
        parse_completion_request(json.dumps({"model": "m", "prompt": "p", **members}).encode())
    assert (caught.value.code, caught.value.param) == (code, param)


def test_what_the_worker_gets_is_what_was_asked() -> None:
    body = {"model": "m", "prompt": [[1, 2]], "stream": True, "best_of": 2, "n": 2, "logprobs": 0}
    request = parse_completion_request(json.dumps(body).encode())
    inner = parse_completion_request(completion_inner_body(request))
    assert (inner.prompt, inner.num_answers, inner.logprobs) == ([[1, 2]], 2, 0)
    assert inner.wants_usage_chunk
    assert "[[1, 2]]" not in repr(request)


def test_an_unknown_token_id(stack: Stack) -> None:
    for echo in (True, False):
        refused = ask(stack, prompt=[5000], echo=echo)
        assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_value")
        assert error_of(refused)["param"] == "prompt"
