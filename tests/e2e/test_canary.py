"""Does a prompt stay where it belongs?  A unique word goes everywhere, then everything is searched.

Looked through: every file of the state folder (databases, their journals, logs), every span of
both processes as it would be exported, every log record at every level, and every error answer.
"""

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.leaks import files_of, places_of, whole_record
from tests.e2e.support import Installation, installation
from tests.gateway.support import error_of

CANARY = "canary5b0c97de"


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Our own loggers and the servers' at every level."""
    for name in ("gateway", "attestation", "runtime", "telemetry", "uvicorn", "alembic"):
        caplog.set_level(logging.DEBUG, logger=name)
    caplog.set_level(logging.INFO)
    return caplog


def test_the_canary_is_nowhere_but_in_the_answer(
    tmp_path: Path, tiny_model: Path, everything_logged: pytest.LogCaptureFixture
) -> None:
    with installation(tmp_path, tiny_model) as running:
        answers = send_everywhere(running)
        break_the_engine(running)
        exported = running.exported()
        evidence = running.worker_get("/attestation", nonce="ab" * 32).text
        stats = running.worker_get("/stats").text
        assert "chat tiny" in exported
        assert "attest worker-0" in exported
    # httpx logs each address it asks; what this test asked for is not the product's to hide
    records = [r for r in everything_logged.records if running.base_url not in r.getMessage()]
    places = {
        "spans": exported,
        "error answers": answers,
        "evidence": evidence,
        "stats": stats,
        **places_of(tmp_path, records),
    }
    assert {place for place, text in places.items() if CANARY in text} == set()
    assert {place for place, text in places.items() if running.key in text} == set()
    assert any(name.endswith("gateway.db") for name in places)


def test_the_search_would_find_it(
    tmp_path: Path, everything_logged: pytest.LogCaptureFixture
) -> None:
    """The control: a leak into a file, an argument and an exception is seen."""
    (tmp_path / "leak.db").write_text(CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError:
        logging.getLogger("gateway.x").exception("boom")
    logging.getLogger("gateway.x").info("hello", extra={"text": CANARY})
    records = [whole_record(record) for record in everything_logged.records]
    assert sum(CANARY in record for record in records) == 2
    assert any(CANARY in path.read_text() for path in files_of(tmp_path))


TOOL = {"name": "f", "description": CANARY, "parameters": {"type": "object", "title": CANARY}}
# (path, members, whether it is answered)
ELSEWHERE: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("/v1/completions", {"prompt": [CANARY, "x"], "echo": True, "max_tokens": 1}, True),
    ("/v1/completions", {"prompt": CANARY, "stop": CANARY, "stream": True}, True),
    ("/v1/completions", {"prompt": "x", "suffix": CANARY}, False),
    ("/v1/responses", {"input": CANARY, "metadata": {CANARY: CANARY}, "stream": True}, True),
    ("/v1/responses", {"input": CANARY, "instructions": CANARY, "max_output_tokens": 1}, True),
    ("/v1/responses", {"input": [{"role": CANARY, "content": CANARY}]}, False),
    ("/v1/responses", {"input": [{"type": CANARY}]}, False),
    ("/v1/responses", {"input": "x", "tools": [{"type": "function", "name": CANARY + " "}]}, False),
    ("/v1/responses", {"input": CANARY * 800, "tools": [{"type": "function", **TOOL}]}, False),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": CANARY * 800}],
            "tools": [{"type": "function", "function": TOOL}],
            "tool_choice": "required",
        },
        False,
    ),
    ("/v1/embeddings", {"input": CANARY}, False),
)


def ask_elsewhere(
    client: httpx.Client, model: str, path: str, members: dict[str, Any], is_answered: bool
) -> str:
    """What was refused, as it was told."""
    answer = client.post(path, json={"model": model, **members})
    assert answer.is_success == is_answered, (path, answer.status_code)
    return "" if is_answered else answer.text


def send_everywhere(running: Installation) -> str:
    """Success, every kind of refusal, and odd places for the word; all error answers joined."""
    content = {"content-type": "application/json"}
    secret = {"role": "user", "content": CANARY}
    errors = []
    with running.http() as client:
        accepted: list[dict[str, Any]] = [{}, {"stream": True}, {"stop": CANARY}, {"user": CANARY}]
        for members in accepted:
            sent = client.post("/v1/chat/completions", json=running.body(CANARY, **members))
            assert sent.status_code == 200
        refused: list[dict[str, Any]] = [
            {"temperature": CANARY},
            {"messages": [{"role": CANARY, "content": CANARY}]},
            {"messages": [{"role": "user", "content": [{"type": CANARY}]}]},
            {"messages": [secret, {"role": "user", "content": {"a": CANARY}}]},
            {"messages": [{"role": "user", "content": f"{CANARY} " * 800}]},
            {"model": CANARY},
            {"stream_options": {"include_usage": CANARY}},
        ]
        for members in refused:
            answer = client.post("/v1/chat/completions", json=running.body(CANARY, **members))
            assert answer.status_code >= 400, members
            errors.append(answer.text)
        errors += [ask_elsewhere(client, running.body()["model"], *ask) for ask in ELSEWHERE]
        raw = [f'{{"{CANARY}'.encode(), json.dumps([CANARY]).encode(), CANARY.encode() * 100_000]
        for body in raw:
            errors.append(client.post("/v1/chat/completions", content=body, headers=content).text)
        for headers in ({"traceparent": CANARY}, {"authorization": f"Bearer {CANARY}"}):
            answer = client.post("/v1/chat/completions", json=running.body(CANARY), headers=headers)
            errors.append("" if answer.is_success else answer.text)
        errors += elsewhere(running, client)
        errors.append(client.get(f"/v1/attestation?nonce={CANARY}").text)
        errors.append(client.get(f"/v1/models/{CANARY}").text)
        errors.append(client.post(f"/{CANARY}").text)
    return "\n".join(errors)


def elsewhere(running: Installation, client: httpx.Client) -> list[str]:
    """The other endpoints and the places that tools have; what they refuse."""
    function = {"name": CANARY, "description": CANARY, "parameters": {"title": CANARY}}
    call = {"id": CANARY, "type": "function", "function": {"name": CANARY, "arguments": CANARY}}
    history = [
        {"role": "user", "content": CANARY},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": CANARY, "content": CANARY},
    ]
    tools = [{"type": "function", "function": function}]
    base = {"model": running.model}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", running.body(CANARY, tools=tools)),
        ("/v1/chat/completions", running.body(messages=history, tools=tools)),
        ("/v1/chat/completions", running.body(CANARY, tools=[CANARY])),
        ("/v1/chat/completions", running.body(CANARY, guided_regex=f"({CANARY}")),
        ("/v1/completions", {**base, "prompt": CANARY, "max_tokens": 4}),
        ("/v1/completions", {**base, "prompt": CANARY, "best_of": CANARY}),
        ("/v1/embeddings", {**base, "input": CANARY}),
        ("/v1/responses", {**base, "input": CANARY, "max_output_tokens": 16}),
        ("/v1/responses", {**base, "input": CANARY, "tools": [{"type": CANARY}]}),
    ]
    answers = [client.post(path, json=body) for path, body in bodies]
    return [answer.text for answer in answers if answer.is_error]


def break_the_engine(running: Installation) -> None:
    """A library that quotes its input in an exception must not reach a log or a span."""
    bridge = running.worker.app.state.ready.bridge
    step = bridge._engine.advance

    def explode() -> object:
        raise RuntimeError(f"cannot process {CANARY}")

    bridge._engine.advance = explode
    with running.http() as client:
        failed = client.post("/v1/chat/completions", json=running.body(CANARY))
    assert (failed.status_code, error_of(failed)["code"]) == (500, "generation_failed")
    bridge._engine.advance = step
    service = running.worker.app.state.ready.service
    service._model, model = None, service._model
    with running.http() as client:
        failed = client.post("/v1/chat/completions", json=running.body(CANARY))
    assert (failed.status_code, error_of(failed)["code"]) == (500, "internal_error")
    service._model = model
