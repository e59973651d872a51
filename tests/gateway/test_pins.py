"""Is a request refused before it is sent on when what its client insists on is not so?"""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from attestation.binding import keyset_digest
from gateway.pins import MAX_PINS, parse_pins, require_gateway_pins
from gateway.problems import GatewayError
from tests.gateway.support import Stack, chat_body, error_of, running_stack

NONCE = "ab" * 32
OTHER = "cd" * 32


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("pins")) as running:
        yield running


def ask(stack: Stack, *pins: str) -> httpx.Response:
    headers = [("starshade-pin", pin) for pin in pins]
    return stack.client.post("/v1/chat/completions", json=chat_body(), headers=headers)


def keyset_of(stack: Stack) -> dict[str, Any]:
    keyset: dict[str, Any] = stack.client.get("/v1/attestation", params={"nonce": NONCE}).json()[
        "keyset"
    ]
    return keyset


def test_what_the_evidence_says_is_met(stack: Stack) -> None:
    keyset = keyset_of(stack)
    pins = [
        f"mode=terminate, policy_sha256={keyset['policy_sha256']}",
        f"keyset_sha256={keyset_digest(keyset).hex()}",
        f"weights_sha256={OTHER}, weights_sha256={keyset['weights_sha256'][0]}",
    ]
    assert ask(stack, *pins).status_code == 200


@pytest.mark.parametrize(
    "pin",
    [
        "mode=pass-through",
        f"policy_sha256={OTHER}",
        f"keyset_sha256={OTHER}",
        f"weights_sha256={OTHER}",
        f"mode=terminate, weights_sha256={OTHER}",
    ],
)
def test_what_is_not_so_is_refused_and_nothing_sent_on(stack: Stack, pin: str) -> None:
    steps = stack.worker_stats()["step"]
    answer = ask(stack, pin)
    assert (answer.status_code, error_of(answer)["code"]) == (412, "session_not_accepted")
    assert answer.headers["starshade-receipt"]
    assert stack.worker_stats()["step"] == steps


@pytest.mark.parametrize(
    "pin",
    [
        "",
        "mode",
        "mode=open",
        "build_sha256=" + OTHER,
        "policy_sha256=" + OTHER.upper(),
        "mode=terminate,",
    ],
)
def test_a_pin_that_is_not_understood_is_not_ignored(stack: Stack, pin: str) -> None:
    answer = ask(stack, pin)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_value")


def test_pins_are_counted() -> None:
    assert parse_pins(["mode=terminate"] * MAX_PINS) == {"mode": frozenset({"terminate"})}
    with pytest.raises(GatewayError):
        parse_pins(["mode=terminate"] * (MAX_PINS + 1))
    assert parse_pins([]) == {}


def test_where_nothing_attests_no_pin_is_met() -> None:
    with pytest.raises(GatewayError) as caught:
        asyncio.run(require_gateway_pins({"mode": frozenset({"terminate"})}, None))
    assert caught.value.code == "session_not_accepted"
    asyncio.run(require_gateway_pins({"weights_sha256": frozenset({OTHER})}, None))
