"""Is /openapi.json true?  What it says holds for any request."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from attestation.channel import CHUNKED_REQUEST_TYPE
from gateway.app import ROUTES
from gateway.auth import Scope
from gateway.endpoints import ENDPOINTS, Endpoint
from gateway.openapi import openapi_document
from gateway.problems import GatewayError
from gateway.schemas.wire import parse_object
from tests.gateway.doors.clients import post_ehbp
from tests.gateway.support import MODEL, Stack, make_key, running_stack

FOLDER = Path(__file__).parent / "description"
MAX_EXAMPLES = 2  # of each operation; by hand, more find more
# What no schema says: (code, parameter) of refusals of a request that follows it.
UNSAID = {
    ("invalid_value", r"(messages\[\d+\]\.tool_call_id|input)"),
    ("invalid_value", r"tools|tool_choice|top_logprobs|stream_options|guided_\w+|n"),
    ("unsupported_parameter", r"best_of|echo"),
    ("invalid_value", r"input\[\d+\]\.call_id"),  # and as a response says it
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("openapi"), is_tcp=True) as stack:
        yield stack


def test_it_is_served_to_everyone(stack: Stack) -> None:
    answer = stack.client.get("/openapi.json", headers={"authorization": ""})
    assert answer.json() == openapi_document()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_another_method_is_told_which_there_are(stack: Stack, route: Route) -> None:
    answer = stack.client.request("TRACE", route.path)
    documented = openapi_document()["paths"][re.sub(r":path}", "}", route.path)]
    assert answer.status_code == 405
    allowed = set(answer.headers["allow"].split(", ")) - {"HEAD"}
    assert allowed == {method.upper() for method in documented}


def _require_described(answer: httpx.Response, status: int) -> None:
    request = answer.request
    operation = openapi_document()["paths"][request.url.path][request.method.lower()]
    content = operation["responses"][str(answer.status_code)].get("content", {})
    assert answer.status_code == status
    assert set(content) == set() if status == 304 else answer.headers["content-type"] in content
    assert set(request.url.params) <= {p["name"] for p in operation.get("parameters", ())}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_how_keys_that_are_unknown_are_refused_is_described(
    stack: Stack, endpoint: Endpoint
) -> None:
    body = b"\0\0\0\x20" + bytes(32)
    _require_described(post_ehbp(stack, body, b"x" * 32, path=endpoint.path), 422)


def test_how_what_is_sealed_is_refused_is_described(tmp_path: Path) -> None:
    keys, sealed = "/.well-known/ohttp-gateway", {"content-type": CHUNKED_REQUEST_TYPE}
    with running_stack(tmp_path, gateway__mode="pass-through") as stack:
        etag = stack.client.get(keys).headers["etag"]
        metrics = make_key(stack.config, tenant="ops", scopes=[Scope.METRICS])
        _require_described(stack.client.get(keys, headers={"if-none-match": etag}), 304)
        _require_described(stack.client.get(keys, params={"model": "other"}), 404)
        _require_described(stack.client.get("/.well-known/hpke-keys"), 404)
        for path in (keys, "/ohttp"):
            for key, status in (("nobody", 401), (metrics, 403)):
                headers = {"authorization": f"Bearer {key}", **sealed}
                answer = stack.client.post(path, content=b"x", headers=headers)
                _require_described(answer, status)


def _cases(endpoint: Endpoint) -> Any:
    schema = schemathesis.openapi.from_dict(openapi_document())
    return schema[endpoint.path]["POST"].as_strategy()


def _is_unsaid(err: GatewayError) -> bool:
    return any(err.code == code and re.fullmatch(param, err.param or "") for code, param in UNSAID)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_what_the_schema_allows_is_only_refused_for_what_it_cannot_say(endpoint: Endpoint) -> None:
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_cases(endpoint))
    def parse(case: Any) -> None:
        try:
            call = endpoint.validate(parse_object(json.dumps(case.body).encode()))
        except GatewayError as err:
            if not _is_unsaid(err):
                raise
        else:
            found = endpoint.validate(parse_object(call.body))  # by the worker
            assert found.body == call.body

    parse()


@pytest.mark.slow
def test_schemathesis_finds_nothing(stack: Stack) -> None:
    """The tool as it is, in a process of its own, with all its checks."""
    command = [sys.executable, "-m", "schemathesis.cli"]
    command += ["--config-file", str(FOLDER / "schemathesis.toml"), "run"]
    command += [f"http://127.0.0.1:{stack.gateway.port}/openapi.json", "--checks=all"]
    command += ["--phases=examples,coverage,fuzzing", f"--max-examples={MAX_EXAMPLES}"]
    command += ["--seed=1", "--no-color", "-H", f"Authorization: Bearer {stack.key}"]
    environ = {
        **os.environ,  # noqa: TID251 - a process edge
        "SCHEMATHESIS_HOOKS": "tests.gateway.description.hooks",
        "STARSHADE_TEST_MODEL": MODEL,
        "PYTHONPATH": str(FOLDER.parents[2]),
    }
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900)
    found = re.sub(r".{400}(?=.*)", lambda match: match[0][:40] + "...", ran.stdout[-20_000:])
    assert ran.returncode == 0, found[-6000:]
