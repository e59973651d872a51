"""Does the unmodified openai client work through TLS, gateway, sealed hop, worker and engine?"""

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.support import Installation, held_engine, installation
from tests.gateway.support import make_key, wait_until
from tests.support.resources import model_path


@pytest.fixture
def client(running: Installation) -> Iterator[openai.OpenAI]:
    with running.openai() as client:
        yield client


def test_whole_answer(running: Installation, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=running.model,
        messages=[{"role": "user", "content": "Say something."}],
        max_tokens=8,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_streamed_answer(running: Installation, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model=running.model,
        messages=[{"role": "user", "content": "Count."}],
        max_tokens=12,
        temperature=0,
    )
    chunks = list(
        client.chat.completions.create(
            model=running.model,
            messages=[{"role": "user", "content": "Count."}],
            max_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in {"stop", "length"}


def test_a_seed_repeats_itself(running: Installation, client: openai.OpenAI) -> None:
    texts = {
        client.chat.completions.create(
            model=running.model,
            messages=[{"role": "user", "content": "Dice."}],
            max_tokens=8,
            temperature=1,
            seed=7,
        )
        .choices[0]
        .message.content
        for _ in range(2)
    }
    assert len(texts) == 1


def test_the_environment_is_all_that_a_client_needs(running: Installation) -> None:
    program = (
        "import openai, sys\n"
        "model = openai.OpenAI().models.list().data[0].id\n"
        "stream = openai.OpenAI().chat.completions.create(model=model, stream=True,"
        " max_tokens=4, messages=[{'role': 'user', 'content': 'x'}])\n"
        "print(model, sum(1 for chunk in stream) > 1)\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "OPENAI_API_KEY": running.key,
        "OPENAI_BASE_URL": f"{running.base_url}/v1",
        "SSL_CERT_FILE": str(running.config.paths.ca_cert),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == [running.model, "True"], done.stderr


def test_answers_differ_unless_a_seed_is_given(running: Installation) -> None:
    def text(**members: Any) -> str:
        body = running.body(temperature=2, max_tokens=24, ignore_eos=True, **members)
        with running.http() as client:
            answer = client.post("/v1/chat/completions", json=body)
        return str(answer.json()["choices"][0]["message"]["content"])

    # The tiny model is sure of itself: two answers may be equal by chance, eight are not.
    answers = {text() for _ in range(8)}
    assert len(answers) > 1
    assert text(seed=5) == text(seed=5)


def test_models(running: Installation, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [running.model]
    assert client.models.retrieve(running.model).id == running.model


def test_typed_errors_reach_the_client(running: Installation, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model=running.model, messages=[{"role": "user", "content": "x " * 9000}]
        )
    assert long.value.code == "context_length_exceeded"
    with (
        running.openai(key="sk-starshade-" + "x" * 43) as stranger,
        pytest.raises(openai.AuthenticationError) as wrong,
    ):
        stranger.models.list()
    assert wrong.value.code == "invalid_api_key"


def test_only_tls_1_3_and_only_our_authority(running: Installation) -> None:
    old = running.tls_context()
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    for context in (old, ssl.create_default_context()):
        with (
            httpx.Client(verify=context) as client,
            pytest.raises(httpx.ConnectError),
        ):
            client.get(f"{running.base_url}/healthz")


def test_the_prefix_cache_serves_one_tenant_only(running: Installation) -> None:
    other_key = make_key(running.config, tenant="globex")
    body = running.body("A prefix that is long enough for several blocks. " * 3)

    def cached_tokens(key: str) -> int:
        with running.http(key=key) as client:
            usage = client.post("/v1/chat/completions", json=body).json()["usage"]
            cached: int = usage["prompt_tokens_details"]["cached_tokens"]
            return cached

    assert cached_tokens(running.key) == 0
    assert cached_tokens(running.key) > 0
    assert cached_tokens(other_key) == 0
    assert cached_tokens(other_key) > 0


def test_a_client_that_leaves_frees_its_blocks(running: Installation) -> None:
    body = running.body(stream=True, max_tokens=8000, ignore_eos=True)
    with held_engine(running, 0.01), running.http() as client:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            assert running.worker_get("/stats").json()["open"] == 1
        wait_until_left(running)


def test_a_client_that_leaves_a_whole_answer_frees_its_blocks(running: Installation) -> None:
    body = running.body(max_tokens=8000, ignore_eos=True)
    patience = httpx.Timeout(60, read=1)
    with held_engine(running, 0.01), running.http() as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/chat/completions", json=body, timeout=patience)
        wait_until_left(running)


def wait_until_left(running: Installation) -> None:
    """Until the one client's request holds nothing any more; its answer would take longer."""
    wait_until(lambda: running.worker_get("/stats").json()["open"] == 0)

    def held() -> tuple[int, int]:
        step = running.worker_get("/stats").json()["step"]
        return step["num_running"], step["num_used_blocks"]

    with running.http() as client:
        answer = client.post("/v1/chat/completions", json=running.body(ignore_eos=True))
    assert answer.status_code == 200
    wait_until(lambda: held() == (0, 0))
    wait_until(lambda: "client_disconnected" in running.exported())
    running.gateway_spans.clear()


def test_one_trace_spans_both_processes(running: Installation) -> None:
    with running.http() as client:
        response = client.post("/v1/chat/completions", json=running.body(stream=True))
    request_id = response.headers["x-request-id"]
    running.exported()
    (engine,) = [
        json.loads(span.to_json())
        for span in running.worker_spans.get_finished_spans()
        if span.name == "engine"
        and span.attributes
        and span.attributes.get("starshade.request.id") == request_id
    ]
    (root,) = [
        json.loads(span.to_json())
        for span in running.gateway_spans.get_finished_spans()
        if span.attributes and span.attributes.get("starshade.request.id") == request_id
    ]
    assert engine["parent_id"] == root["context"]["span_id"]


@pytest.mark.model
def test_the_real_model_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = model_path()
    with installation(
        tmp_path_factory.mktemp("real"), model, engine__kv_cache_bytes=64 << 20
    ) as real:
        with real.openai() as client:
            stream = client.chat.completions.create(
                model=model.stem,
                messages=[{"role": "user", "content": "Name the capital city of France."}],
                max_tokens=12,
                temperature=0,
                stream=True,
            )
            text = "".join(c.choices[0].delta.content or "" for c in stream)
        # No step is a near tie: the second best token is 0.7 behind in float32 and in int8.
        assert text.startswith("The capital city of France is Paris.")
