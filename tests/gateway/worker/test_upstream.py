"""Is a model of a server beside the worker served like one of our own, sealed all the way to it?"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from click.testing import CliRunner

from attestation.channel import CHUNKED_REQUEST_TYPE, ClientRequest, bhttp
from attestation.model import parse_bundle
from attestation.receipt import SignedReceipt
from gateway.cli import main
from gateway.config_rules import sha256, upstream_address
from gateway.problems import GatewayError
from gateway.worker.dialects import upstream_body
from tests.gateway.doors.clients import key_list
from tests.gateway.support import (
    Stack,
    error_of,
    events_of,
    make_key,
    running_stack,
    wait_until,
)
from tests.gateway.worker.fake_upstream import MODEL, TEXTS, FakeUpstream
from tests.support.servers import ServerThread

WEIGHTS = "cd" * 32
TEXT = "".join(TEXTS)


@dataclass
class Served:
    """A stack whose worker is an adapter, and the server behind it."""

    stack: Stack
    upstream: FakeUpstream
    server: ServerThread

    def chat(self, **members: Any) -> httpx.Response:
        return self.stack.chat(model=MODEL, **members)

    @property
    def last_body(self) -> dict[str, Any]:
        return self.upstream.bodies[-1]


@contextlib.contextmanager
def serving(
    folder: Path, *, how: str = "well", wait: bool = True, **flags: Any
) -> Iterator[Served]:
    upstream = FakeUpstream()
    upstream.how = how
    socket = folder / "up.sock"
    server = ServerThread(upstream, uds=socket)
    with (
        server,
        running_stack(
            folder,
            wait=wait,
            worker__upstream=f"unix:{socket}",
            worker__upstream_weights_sha256=WEIGHTS,
            **flags,
        ) as stack,
    ):
        yield Served(stack=stack, upstream=upstream, server=server)


@pytest.fixture(scope="module")
def module_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("up")) as served:
        yield served


@pytest.fixture
def served(module_served: Served) -> Iterator[Served]:
    module_served.upstream.how = "well"
    yield module_served
    wait_until(lambda: module_served.stack.worker_stats()["open"] == 0)


def test_a_whole_answer_reads_like_our_own(served: Served) -> None:
    response = served.chat()
    answer = response.json()
    assert answer["choices"][0]["message"]["content"] == TEXT
    assert answer["id"] == f"chatcmpl-{response.headers['x-request-id']}"
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize("wants_usage", [True, False])
def test_a_streamed_answer_reads_like_our_own(served: Served, wants_usage: bool) -> None:
    response = served.chat(stream=True, stream_options={"include_usage": wants_usage})
    events = events_of(response)
    text = "".join(e["choices"][0]["delta"]["content"] for e in events if e["choices"])
    assert text == TEXT
    assert {event["id"] for event in events} == {f"chatcmpl-{response.headers['x-request-id']}"}
    assert ("usage" in events[-1]) is wants_usage


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_usage_is_told_only_to_whom_it_is_asked_where_nobody_reads_on_the_way(
    tmp_path: Path, path: str
) -> None:
    what = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hi"}
    with serving(tmp_path, gateway__mode="pass-through") as served:
        for options in ({}, {"stream_options": {"include_usage": True}}):
            asked = json.dumps({"model": MODEL, **what, "stream": True, **options}).encode()
            sealed = ClientRequest(key_list(served.stack)[0], rng=os.urandom)
            request = bhttp.Request(method="POST", path=path, fields=(), content=asked)
            answer = served.stack.client.post(
                "/ohttp",
                content=sealed.seal_message(bhttp.serialize_request(request)),
                headers={"content-type": CHUNKED_REQUEST_TYPE},
            )
            opened = sealed.response_opener().open_message(answer.content)
            content = bhttp.parse_response(opened).content
            assert (b'"usage"' in content) is bool(options)
            assert content.count(b'"finish_reason":"stop"') == 1


def test_deltas_are_filled_up_unless_it_is_declined(served: Served) -> None:
    filled = events_of(served.chat(stream=True))
    assert all("obfuscation" in event for event in filled if event["choices"])
    plain = events_of(served.chat(stream=True, stream_options={"include_obfuscation": False}))
    assert not any("obfuscation" in event for event in plain)


def test_a_plain_completion(served: Served) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 2}
    answer = served.stack.client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["text"] == TEXT
    streamed = served.stack.client.post("/v1/completions", json={**body, "stream": True})
    assert "".join(e["choices"][0]["text"] for e in events_of(streamed) if e["choices"]) == TEXT


def test_what_the_server_gets(served: Served) -> None:
    served.chat(temperature=0.5, guided_regex="a+", stream=True)
    body = served.last_body
    assert (body["model"], body["temperature"]) == (MODEL, 0.5)
    assert body["structured_outputs"] == {"regex": "a+"}
    assert body["stream_options"] == {"include_usage": True}
    assert "guided_regex" not in body
    assert len(bytes.fromhex(body["cache_salt"])) == 32


def test_tenants_have_prefix_caches_of_their_own(served: Served) -> None:
    served.chat()
    own = served.last_body["cache_salt"]
    served.chat()
    assert served.last_body["cache_salt"] == own
    other = {"authorization": f"Bearer {make_key(served.stack.config, tenant='other')}"}
    served.stack.client.post(
        "/v1/chat/completions",
        json={"model": MODEL, "messages": [{"role": "user", "content": "x"}]},
        headers=other,
    )
    assert served.last_body["cache_salt"] != own


def test_what_is_attested(served: Served) -> None:
    bundle = served.stack.client.get(
        "/v1/attestation", params={"nonce": "ab" * 32, "node": "worker-0"}
    ).content
    keyset: Any = parse_bundle(bundle).keyset
    assert keyset["weights_sha256"] == [WEIGHTS]
    assert keyset["build"] == {"engine": "upstream/vllm"}
    receipt_id = served.chat().headers["starshade-receipt"]
    answer = served.stack.client.get(f"/v1/receipts/{receipt_id}").content
    assert SignedReceipt.parse(answer).receipt.weights_sha256 == WEIGHTS


def test_models_are_those_of_the_server(served: Served) -> None:
    models = served.stack.client.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == [MODEL]
    assert error_of(served.stack.chat(model="other"))["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("400", "context_length_exceeded"),
        ("422", "invalid_value"),
        ("404", "model_not_found"),
        ("429", "overloaded"),
        ("500", "generation_failed"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_of_the_server_is_told_in_our_words(
    served: Served, how: str, code: str, stream: bool
) -> None:
    served.upstream.how = how
    error = error_of(served.chat(stream=stream))
    assert error["code"] == code
    assert "secret" not in error["message"]


@pytest.mark.parametrize(
    ("path", "prompt", "param"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ("/v1/completions", {"prompt": "x"}, "prompt"),
        ("/v1/embeddings", {"input": "x"}, "input"),
        ("/v1/responses", {"input": "x"}, "input"),
    ],
)
def test_a_prompt_that_is_too_long_is_named_as_it_was_sent(
    served: Served, path: str, prompt: dict[str, Any], param: str
) -> None:
    served.upstream.how = "400"
    error = error_of(served.stack.client.post(path, json={"model": MODEL, **prompt}))
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)


def test_what_came_before_a_malformed_event_is_not_lost(served: Served) -> None:
    served.upstream.how = "malformed"
    response = served.chat(stream=True)
    *_, words, last, _rest = response.text.split("\n\n")
    assert "last words" in words
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "generation_failed"


@pytest.mark.parametrize("how", ["breaks", "error", "no done"])
def test_a_stream_that_breaks_off_ends_in_an_error(served: Served, how: str) -> None:
    served.upstream.how = how
    response = served.chat(stream=True)
    *_, last, rest = response.text.split("\n\n")
    assert rest == ""
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "generation_failed"
    assert "secret" not in response.text


def test_a_client_that_leaves_ends_the_work(served: Served) -> None:
    served.upstream.how = "endless"
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
    with served.stack.client.stream("POST", "/v1/chat/completions", json=body) as response:
        pieces = response.iter_raw()
        next(pieces)
        assert served.stack.worker_stats()["open"] == 1
    wait_until(lambda: served.upstream.num_left == 1)


def test_a_response_by_way_of_a_chat(served: Served) -> None:
    client = served.stack.openai
    asked: Any = {"model": MODEL, "input": "hi", "instructions": "Be brief."}
    whole = client.responses.create(**asked)
    assert (whole.output_text, whole.status) == (TEXT, "completed")
    assert served.last_body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (5, 2)
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == TEXT


def test_calls_of_a_response_are_the_servers(served: Served) -> None:
    served.upstream.how = "calls"
    tools: Any = [{"type": "function", "name": name, "parameters": {}} for name in ("f", "g")]
    response = served.stack.openai.responses.create(model=MODEL, input="hi", tools=tools)
    calls = [item for item in response.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [("f", '{"a": 1}'), ("g", "{}")]
    assert not any(tool["function"]["strict"] for tool in served.last_body["tools"])


@pytest.mark.parametrize("how", ["breaks", "error", "no done"])
def test_a_response_whose_chat_fails_fails(served: Served, how: str) -> None:
    served.upstream.how = how
    client = served.stack.openai
    with pytest.raises(openai.InternalServerError) as caught:
        client.responses.create(model=MODEL, input="hi")
    assert caught.value.code == "generation_failed"
    stream = client.responses.create(model=MODEL, input="hi", stream=True)
    with pytest.raises(openai.APIError, match="server"):
        list(stream)


def test_a_response_that_is_refused_is_refused_in_its_own_words(served: Served) -> None:
    served.upstream.how = "400"
    with pytest.raises(openai.BadRequestError) as caught:
        served.stack.openai.responses.create(model=MODEL, input="hi")
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.NotFoundError):
        served.stack.openai.responses.create(model="other", input="hi")


def test_a_server_that_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.server.stop()
        assert error_of(served.chat())["code"] == "upstream_unavailable"


def test_the_worker_waits_for_a_server_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.worker.upstream.ASK_AGAIN_S", 0.05)
    with serving(tmp_path, how="loading", wait=False) as served:
        assert served.chat().status_code == 503
        served.upstream.how = "well"
        wait_until(lambda: served.chat().status_code == 200)


def test_sglang_has_its_own_words_and_no_choices() -> None:
    body = json.dumps({"guided_regex": "a"}).encode()
    assert json.loads(upstream_body(body, dialect="sglang", cache_salt=b"\1")) == {
        "regex": "a",
        "cache_salt": "01",
    }
    with pytest.raises(GatewayError) as caught:
        upstream_body(b'{"guided_choice": ["a"]}', dialect="sglang", cache_salt=b"")
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "guided_choice")


def test_no_tools_are_not_a_list_without_any() -> None:
    """vLLM answers 400 to an empty one, which is what a response without tools has."""
    body = upstream_body(b'{"tools": [], "n": 1}', dialect="vllm", cache_salt=b"")
    assert json.loads(body) == {"n": 1}


@pytest.mark.parametrize("good", ["unix:/s", "http://127.0.0.1:8000", "http://[::1]:1"])
def test_plaintext_stays_on_this_machine(good: str) -> None:
    assert upstream_address(good) is None


@pytest.mark.parametrize(
    "bad", ["http://10.0.0.1:80", "https://127.0.0.1", "http://example.org", "unix:s", "127.0.0.1"]
)
def test_and_goes_nowhere_else(bad: str) -> None:
    assert upstream_address(bad) is not None
    assert sha256("AB" * 32) is not None


def test_a_worker_attests_no_weights_that_nobody_named(tmp_path: Path) -> None:
    arguments = ["worker", "--upstream", "http://127.0.0.1:9", "--state-dir", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "[upstream_weights_missing]" in result.output) == (2, True)
