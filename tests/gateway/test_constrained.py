"""Does an answer follow the form its client asked for, through the worker's whole path?"""

import asyncio
import itertools
import json
import math
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from gateway.facts import EngineFacts
from gateway.worker.bridge import EngineBridge
from gateway.worker.inner import InnerRequest
from gateway.worker.job import ServedModel
from gateway.worker.parameters import compiled
from gateway.worker.service import EngineService
from gateway.worker.wiring import LoadedEngine, compiler_thread, load_model_engine
from runtime import GrammarSpec, NullObserver
from tests.gateway.support import make_config
from tests.support.tiny_model import write_tiny_gguf

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"enum": [1, 22, 333]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
Json = dict[str, Any]
REQUEST_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedEngine:
    folder = tmp_path_factory.mktemp("constrained")
    model = write_tiny_gguf(folder / "tiny.gguf", seed=3)
    config = make_config(
        folder, worker__model=str(model), worker__threads=1, engine__kv_cache_bytes=1 << 20
    )
    return load_model_engine(config, lambda ratio: None, NullObserver())


@pytest.fixture
async def service(loaded: LoadedEngine) -> AsyncIterator[EngineService]:
    bridge = EngineBridge(loaded.engine, loop=asyncio.get_running_loop())
    bridge.start()
    yield EngineService(
        ServedModel(
            name="tiny",
            tokenizer=loaded.tokenizer,
            max_context_tokens=loaded.max_context_tokens,
            grammars=loaded.grammars,
            unix_s=lambda: 0.0,
            filler=lambda num_bytes: "",
        ),
        bridge=bridge,
        clock_ns=time.monotonic_ns,
        report=lambda facts: None,
    )
    await bridge.stop()


async def ask(service: EngineService, **members: Any) -> tuple[int, Json | list[Json]]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "the user"}], "seed": 1}
    request = InnerRequest(
        method="POST",
        path="/v1/chat/completions",
        body=json.dumps({**body, "max_tokens": 200, **members}).encode(),
        request_id=f"r{next(REQUEST_NUMBERS)}",
        cache_salt=b"",
        traceparent=None,
    )
    response = await service.respond(request)
    answer = b"".join([chunk async for chunk in response.body])
    if not members.get("stream"):
        return response.status, json.loads(answer)
    *events, done, rest = answer.decode().split("\n\n")
    if '"error"' in done:
        events.append(done)
    else:
        assert (done, rest) == ("data: [DONE]", "")
    return response.status, [json.loads(event.removeprefix("data: ")) for event in events]


async def text_of(service: EngineService, **members: Any) -> tuple[str, str]:
    status, answer = await ask(service, **members)
    assert status == 200, answer
    if isinstance(answer, list):
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in answer)
        return text, answer[-1]["choices"][0]["finish_reason"]
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("temperature", [0, 1.2])
async def test_json_of_a_schema(service: EngineService, stream: bool, temperature: float) -> None:
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "person", "schema": PERSON, "strict": True},
    }
    text, reason = await text_of(
        service, response_format=wanted, stream=stream, temperature=temperature
    )
    assert reason == "stop"
    person = json.loads(text)
    assert set(person) == {"name", "age"}
    assert len(person["name"]) <= 12
    assert person["age"] in (1, 22, 333)


async def test_a_json_object_that_is_cut_short_says_so(service: EngineService) -> None:
    text, reason = await text_of(
        service, response_format={"type": "json_object"}, temperature=1, max_tokens=5
    )
    assert text.startswith("{")
    assert reason == "length"


@pytest.mark.parametrize("seed", range(5))
async def test_an_expression_and_a_choice(service: EngineService, seed: int) -> None:
    text, reason = await text_of(
        service, guided_regex="[a-f]{3,9}-(the user)+!?", seed=seed, ignore_eos=True
    )
    assert reason == "length" or re.fullmatch("[a-f]{3,9}-(the user)+!?", text)
    choices = ["yes", "no", "perhaps \u00e9t\u00e9"]
    text, reason = await text_of(service, guided_choice=choices, seed=seed, ignore_eos=bool(seed))
    assert text in choices
    assert reason == "stop"


async def test_constrained_and_free_answers_share_a_batch(service: EngineService) -> None:
    wanted: list[Json] = [
        {"guided_choice": ["alpha", "beta"], "seed": 7},
        {"max_tokens": 30, "temperature": 0},
        {"max_tokens": 30, "temperature": 0, "frequency_penalty": 1.5},
        {"guided_regex": "(the user )+!", "max_tokens": 30, "seed": 3},
    ]
    alone = [await text_of(service, **members) for members in wanted]
    together = await asyncio.gather(*(text_of(service, **members) for members in wanted))
    assert together == alone
    assert alone[1] != alone[2]  # the penalty is heard


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"guided_regex": "[a"}, "invalid_grammar", "guided_regex"),
        ({"guided_regex": "a{1000000}"}, "invalid_grammar", "guided_regex"),
        ({"guided_regex": "((a{100}){100}){100}"}, "invalid_grammar", "guided_regex"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "n",
                        "schema": {"type": "string", "pattern": "^(a{1000}){1000}$"},
                    },
                }
            },
            "invalid_grammar",
            "response_format",
        ),
        ({"guided_regex": "(?=a)b"}, "invalid_grammar", "guided_regex"),
        ({"guided_choice": ["a" * 20_000] * 2}, "invalid_grammar", "guided_choice"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "nope"}},
                }
            },
            "invalid_grammar",
            "response_format",
        ),
        ({"logit_bias": {"99999": 1}}, "invalid_value", "logit_bias"),
    ],
    ids=str,
)
async def test_what_is_refused(
    service: EngineService, members: Json, code: str, param: str
) -> None:
    status, answer = await ask(service, **members)
    assert isinstance(answer, dict)
    assert status == 400
    assert (answer["error"]["code"], answer["error"]["param"]) == (code, param)


async def test_a_grammar_that_gives_up_in_the_middle_says_so(service: EngineService) -> None:
    members: Json = {"guided_regex": "(a{1,1000}){1,1000}"}
    status, answer = await ask(service, **members)
    assert isinstance(answer, dict)
    assert (status, answer["error"]["code"]) == (422, "grammar_failed")
    status, events = await ask(service, stream=True, **members)
    assert isinstance(events, list)
    assert status == 200
    assert events[-1]["error"]["code"] == "grammar_failed"


class _SlowCompiler:
    """Notes how many compile at one time, and at which priority."""

    def __init__(self) -> None:
        self.num_running = self.most_running = 0
        self.niceness: set[int] = set()

    def compile(self, spec: GrammarSpec) -> Any:
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        self.niceness.add(os.getpriority(os.PRIO_PROCESS, 0))
        time.sleep(0.01)
        self.num_running -= 1


async def test_grammars_are_compiled_one_by_one_behind_all_else(loaded: LoadedEngine) -> None:
    compiler, thread = _SlowCompiler(), compiler_thread()
    model = ServedModel(
        name="tiny",
        tokenizer=loaded.tokenizer,
        max_context_tokens=loaded.max_context_tokens,
        grammars=compiler,
        grammar_thread=thread,
        unix_s=lambda: 0.0,
        filler=lambda num_bytes: "",
    )
    specs = [GrammarSpec(kind="regex", sources=(f"a{idx}",)) for idx in range(4)]
    await asyncio.gather(*(compiled(model, partial(_same, one), param="p") for one in specs))
    thread.shutdown()
    assert compiler.most_running == 1
    if sys.platform == "linux":
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert compiler.niceness == {min(own + 5, 19)}


def _same(spec: GrammarSpec) -> GrammarSpec:
    return spec


async def test_a_bias_decides_and_log_probabilities_do_not_hear_of_it(
    service: EngineService, loaded: LoadedEngine
) -> None:
    token_bytes = loaded.tokenizer.token_bytes
    token_id = token_bytes.index(b"x")
    members = {"max_tokens": 3, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    for stream in (False, True):
        status, answer = await ask(
            service, logit_bias={str(token_id): 100}, stream=stream, **members
        )
        assert status == 200
        parts = [answer] if isinstance(answer, dict) else answer
        choices = [choice for part in parts for choice in part["choices"]]
        content = [
            entry for choice in choices for entry in choice.get("logprobs", {}).get("content", [])
        ]
        assert [entry["token"] for entry in content] == ["x"] * 3
        assert all(entry["bytes"] == [ord("x")] for entry in content)
        assert all(len(entry["top_logprobs"]) == 2 for entry in content)
        for entry in content:
            best = entry["top_logprobs"][0]
            assert entry["logprob"] <= best["logprob"] <= 0
            assert math.exp(entry["logprob"]) < 0.5  # the model's own view, without the bias


async def test_the_end_of_an_answer_is_no_part_of_its_log_probabilities(
    service: EngineService, loaded: LoadedEngine
) -> None:
    (end, *_) = sorted(loaded.tokenizer.eos_token_ids)
    _, answer = await ask(
        service, logit_bias={str(end): 100}, logprobs=True, temperature=0, max_tokens=5
    )
    assert isinstance(answer, dict)
    assert answer["usage"]["completion_tokens"] == 1
    assert "logprobs" not in answer["choices"][0]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_facts_hold_no_grammar() -> None:
    assert {"grammar", "schema"}.isdisjoint(EngineFacts.__slots__)
