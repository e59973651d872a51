"""Does anything pass the allow-list that should not?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry import semconv
from telemetry.redact import (
    ALLOWED_ATTRIBUTES,
    ALLOWED_RESOURCE,
    allowed_attributes,
    allowed_span_name,
)

CANARY = "the quick canary sang at dawn"


def test_unlisted_attributes_are_dropped_and_counted() -> None:
    kept, num_dropped = allowed_attributes(
        {"gen_ai.input.messages": CANARY, "foo": 1, semconv.REQUEST_ID: "req-1"}
    )
    assert kept == {semconv.REQUEST_ID: "req-1"}
    assert num_dropped == 2


@pytest.mark.parametrize("name", sorted(ALLOWED_ATTRIBUTES))
def test_no_listed_attribute_takes_a_sentence(name: str) -> None:
    for value in (CANARY, [CANARY], f"a\n{CANARY}", "x" * 5000, b"bytes", {"a": 1}, None):
        assert allowed_attributes({name: value}) == ({}, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (semconv.GEN_AI_REQUEST_MODEL, "smollm2-135m"),
        (semconv.GEN_AI_RESPONSE_FINISH_REASONS, ("stop", "length")),
        (semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, 0.25),
        (semconv.ITL_COUNTS, (1, 0, 3)),
        (semconv.ITL_COUNTS, ()),
        (semconv.HTTP_ROUTE, "/v1/chat/completions"),
        (semconv.HTTP_REQUEST_METHOD, "POST"),
        (semconv.ERROR_TYPE, "upstream_verification_failed"),
        (semconv.ATTESTATION_TIER, "warning"),
        (semconv.ATTESTATION_SIMULATED, False),
        (semconv.ATTESTATION_POLICY_SHA256, "ab" * 32),
        (semconv.ATTESTATION_TRUST_ANCHOR, "intel-sgx-root"),
        (semconv.WORKER_ID, "worker-0"),
    ],
)
def test_honest_values_pass_unchanged(name: str, value: Any) -> None:
    assert allowed_attributes({name: value}) == ({name: value}, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, True),
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, 2**60),
        (semconv.ITL_SUM_S, float("nan")),
        (semconv.ITL_SUM_S, float("inf")),
        (semconv.ITL_COUNTS, tuple(range(5000))),
        (semconv.ATTESTATION_TIER, "trusted"),
        (semconv.GEN_AI_REQUEST_STREAM, 1),
    ],
)
def test_values_of_another_shape_are_dropped(name: str, value: Any) -> None:
    assert allowed_attributes({name: value}) == ({}, 1)


def test_deprecated_spellings_are_renamed_and_lose_to_current_ones() -> None:
    kept, num_dropped = allowed_attributes(
        {
            "gen_ai.usage.prompt_tokens": 7,
            semconv.GEN_AI_USAGE_INPUT_TOKENS: 9,
            "gen_ai.usage.completion_tokens": 3,
            "gen_ai.system": "vllm",
        }
    )
    assert kept == {
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 9,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 3,
        semconv.GEN_AI_PROVIDER_NAME: "vllm",
    }
    assert num_dropped == 0


def test_resource_has_its_own_list() -> None:
    resource = {semconv.SERVICE_NAME: "starshade-worker", "host.name": "secret-host"}
    assert allowed_attributes(resource, ALLOWED_RESOURCE) == (
        {semconv.SERVICE_NAME: "starshade-worker"},
        1,
    )


@pytest.mark.parametrize(
    "name",
    [
        "chat",
        "chat smollm2-135m",
        "text_completion m",
        "sealed",
        "attest worker-0",
        "seal",
        "stream",
        "engine",
        "decode",
    ],
)
def test_our_span_names_pass(name: str) -> None:
    assert allowed_span_name(name) == name


@given(st.text())
def test_other_span_names_do_not(tail: str) -> None:
    assert allowed_span_name(f"chat {tail} {CANARY}") == "redacted"
    assert allowed_span_name(f"seal{tail}!") == "redacted"
