"""Which spans does a request leave?  Names, parents and attribute keys, whatever way it ends."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from sqlalchemy import update

from gateway.db import open_engine
from gateway.db.engine import writing
from gateway.db.models import ApiKeyRow
from gateway.workers import WorkerDirectory
from tests.gateway.support import (
    Stack,
    error_of,
    make_config,
    make_worker_app,
    running_stack,
    wait_until,
)
from tests.support.servers import ServerThread

ALWAYS = {
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "http.request.method",
    "http.response.status_code",
    "http.route",
    "starshade.request.id",
}
PARSED = ALWAYS | {
    "gen_ai.request.max_tokens",
    "gen_ai.request.model",
    "gen_ai.request.stream",
    "starshade.tenant.id",
}
SENT = PARSED | {"starshade.lease.id", "starshade.worker.id"}
FINISHED = SENT | {
    "gen_ai.response.finish_reasons",
    "gen_ai.response.model",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
}
STREAMED = {
    "gen_ai.response.time_to_first_chunk",
    "starshade.itl.count",
    "starshade.itl.counts",
    "starshade.itl.max_s",
    "starshade.itl.offset",
    "starshade.itl.scale",
    "starshade.itl.sum_s",
    "starshade.itl.zero_count",
    "starshade.output.chunks",
}


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("observe")) as stack:
        yield stack


def tree_of(stack: Stack, request_id: str) -> tuple[dict[str, Any], list[str]]:
    """The root's attributes and the names of its children, by start."""
    (root,) = _roots(stack, request_id)
    assert root.context is not None
    children = [
        span
        for span in stack.spans("")
        if span.parent is not None and span.parent.span_id == root.context.span_id
    ]
    children.sort(key=lambda span: span.start_time or 0)
    for child in children:
        assert (root.start_time or 0) <= (child.start_time or 0)
        assert (child.end_time or 0) <= (root.end_time or 0)
    return dict(root.attributes or {}), [child.name for child in children]


def _roots(stack: Stack, request_id: str) -> list[ReadableSpan]:
    return [
        span
        for span in stack.spans("chat")
        if span.attributes and span.attributes["starshade.request.id"] == request_id
    ]


def test_a_whole_answer(stack: Stack) -> None:
    response = stack.chat(ignore_eos=True)
    attributes, children = tree_of(stack, response.headers["x-request-id"])
    assert set(attributes) == FINISHED
    assert children == ["seal", "stream"]
    assert attributes["gen_ai.usage.output_tokens"] == 8
    assert attributes["starshade.tenant.id"] == "acme"


def test_a_key_of_before_tenant_names_were_bounded(stack: Stack) -> None:
    database = open_engine(stack.config.database_url)
    with writing(database).begin() as connection:
        connection.execute(update(ApiKeyRow).values(tenant="Acme Inc @ home"))
    database.dispose()
    response = stack.chat()
    attributes, _ = tree_of(stack, response.headers["x-request-id"])
    assert re.fullmatch("sha256:[0-9a-f]{16}", attributes["starshade.tenant.id"])


def test_a_streamed_answer(stack: Stack) -> None:
    response = stack.chat(stream=True, ignore_eos=True)
    attributes, children = tree_of(stack, response.headers["x-request-id"])
    assert set(attributes) == FINISHED | STREAMED
    assert children == ["seal", "stream"]
    assert attributes["starshade.itl.count"] == attributes["starshade.output.chunks"] - 1
    assert 0 < attributes["gen_ai.response.time_to_first_chunk"] < 5


def test_gateway_and_worker_name_the_worker_alike(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("named")
    with running_stack(folder, worker__id="blue-7") as stack:
        response = stack.chat()
        attributes, _ = tree_of(stack, response.headers["x-request-id"])
        assert attributes["starshade.worker.id"] == "blue-7"
        assert [span.name for span in stack.spans("attest")] == ["attest blue-7"]
        assert [node["id"] for node in stack.client.get("/v1/nodes").json()["data"]] == ["blue-7"]
        (engine,) = [span for span in stack.engine_spans() if span.name == "engine"]
    assert (engine.attributes or {})["starshade.worker.id"] == "blue-7"


def test_accepted_evidence_of_another_worker_is_a_rejection(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_stack(tmp_path_factory.mktemp("changed")) as stack:
        stack.worker.stop()
        other = make_config(stack.config.state_dir, worker__id="another")
        app = make_worker_app(other, stack.engine, stack.worker_spans)
        with ServerThread(app, uds=stack.config.worker.socket):
            directory = stack.gateway.app.services.directory
            wait_until(lambda: _reattested(stack, directory) == "replica_mismatch")
            answer = stack.chat()
        assert (answer.status_code, error_of(answer)["code"]) == (
            503,
            "upstream_verification_failed",
        )
        attributes = dict(stack.spans("attest")[-1].attributes or {})
    assert attributes["starshade.worker.id"] == "worker-0"
    assert attributes["starshade.attestation.tier"] == "contraindicated"
    assert attributes["starshade.attestation.code"] == "replica_mismatch"


def _reattested(stack: Stack, directory: WorkerDirectory) -> str | None:
    """The code of the one worker after another attestation."""
    (node,) = directory.nodes
    stack.gateway.run(directory.reattest(node))
    return node.machine.quarantine_code


def test_requests_that_never_left(stack: Stack) -> None:
    stack.client.post("/v1/chat/completions", headers={"authorization": "Bearer x"})
    stack.chat(best_of=2)
    stack.chat(model="prompt-in-the-model-name")
    assert len(stack.spans("chat")) == 3
    found = {
        str(span.attributes["error.type"]): (span.name, set(span.attributes))
        for span in stack.spans("chat")
        if span.attributes
    }
    assert found == {
        "invalid_api_key": ("chat", ALWAYS | {"error.type"}),
        "unsupported_parameter": ("chat", ALWAYS | {"error.type", "starshade.tenant.id"}),
        "model_not_found": (
            "chat",
            (PARSED | {"error.type"}) - {"gen_ai.request.model"},  # a name that is not ours
        ),
    }


def test_a_failed_stream(stack: Stack) -> None:
    def explode(_plan: object) -> None:
        raise RuntimeError

    stack.engine.runner.before_run = explode
    response = stack.chat(stream=True)
    attributes, _ = tree_of(stack, response.headers["x-request-id"])
    assert attributes["error.type"] == "generation_failed"
    assert attributes["http.response.status_code"] == 200
    assert set(attributes) == SENT | {"error.type"}


def test_a_client_that_left(stack: Stack) -> None:
    stack.engine.runner.before_run = lambda _plan: time.sleep(0.05)
    body = {"stream": True, "max_tokens": 200, "ignore_eos": True}
    with stack.client.stream(
        "POST",
        "/v1/chat/completions",
        json={"model": "hash", "messages": [{"role": "user", "content": "x"}], **body},
    ) as response:
        lines = response.iter_lines()
        next(lines)
    attributes, _ = tree_of(stack, response.headers["x-request-id"])
    assert attributes["error.type"] == "client_disconnected"
    assert attributes["http.response.status_code"] == 499
    assert set(attributes) - STREAMED == SENT | {"error.type"}


def test_the_worker_continues_the_trace(stack: Stack) -> None:
    response = stack.chat(ignore_eos=True)
    request_id = response.headers["x-request-id"]
    (engine,) = [
        span
        for span in stack.engine_spans()
        if span.attributes and span.attributes.get("starshade.request.id") == request_id
    ]
    (root,) = _roots(stack, request_id)
    assert engine.parent is not None
    assert root.context is not None
    assert engine.context is not None
    assert engine.parent.span_id == root.context.span_id
    stages = [
        span.name
        for span in stack.engine_spans()
        if span.parent is not None and span.parent.span_id == engine.context.span_id
    ]
    assert stages == ["queue", "prefill", "decode"]


def test_an_attestation_is_a_trace_of_its_own(stack: Stack) -> None:
    wait_until(lambda: bool(stack.spans("attest")))
    (span,) = stack.spans("attest")
    assert span.name == "attest worker-0"
    assert span.parent is None
    attributes = json.loads(span.to_json())["attributes"]
    assert attributes["starshade.attestation.tier"] == "warning"
    assert attributes["starshade.attestation.simulated"] is True
    assert attributes["starshade.attestation.weights_sha256"] == "ab" * 32
    assert "error.type" not in attributes
    (node,) = stack.client.get("/v1/nodes").json()["data"]
    not_after = datetime.fromtimestamp(attributes["starshade.attestation.not_after_s"], UTC)
    assert not_after.strftime("%Y-%m-%dT%H:%M:%SZ") == node["not_after"]
