"""Do our own clients speak to the real gateway, sealed, and through a change of its keys?"""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from attestation.channel import KEM_XWING
from attestation.transport import (
    EvidenceRefused,
    async_client_over,
    attested_client,
    client_over,
    gateway_keeper,
)
from tests.e2e.support import Installation, installation
from tests.gateway.support import edge_keys, rotate

PROMPT = "the-canary-sings-at-noon"


def options(running: Installation) -> dict[str, Any]:
    return {"policy": "development", "ca_file": running.config.paths.ca_cert}


def messages() -> Any:
    return [{"role": "user", "content": PROMPT}]


def test_three_lines_give_an_answer_whole_and_streamed(running: Installation) -> None:
    url = f"{running.base_url}/v1"
    http: Any = attested_client(url, **options(running))
    with openai.OpenAI(
        base_url=url, api_key=running.key, http_client=http, max_retries=0
    ) as client:
        whole = client.chat.completions.create(
            model=running.model, messages=messages(), max_tokens=8, temperature=0
        )
        stream = client.chat.completions.create(
            model=running.model, messages=messages(), max_tokens=8, temperature=0, stream=True
        )
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        assert text == whole.choices[0].message.content
        assert [model.id for model in client.models.list()] == [running.model]


async def test_keys_that_rotate_all_the_time_fail_no_request(
    tmp_path: Path, tiny_model: Path
) -> None:
    with installation(tmp_path, tiny_model) as running:
        keys = edge_keys(running.gateway.app)
        url = f"{running.base_url}/v1"
        keeper = gateway_keeper(url, **options(running))
        http: Any = async_client_over(keeper, url, ca_file=running.config.paths.ca_cert)
        seen: set[int] = set()
        async with openai.AsyncOpenAI(
            base_url=url, api_key=running.key, http_client=http, max_retries=0
        ) as client:

            async def ask() -> str | None:
                answer = await client.chat.completions.create(
                    model=running.model, messages=messages(), max_tokens=2, temperature=0
                )
                return answer.choices[0].message.content

            answers = set()
            for _ in range(8):  # a key that is learnt late in a round is good for two more
                rotating = asyncio.to_thread(rotate, running.gateway, keys)
                first, second, _ = await asyncio.gather(ask(), ask(), rotating)
                answers |= {first, second}
                seen.add((await keeper.arequire()).key_config.key_id)
    assert len(answers) == 1
    assert len(seen) >= 3


def test_the_key_that_survives_quantum_computers_is_preferred(running: Installation) -> None:
    keeper = gateway_keeper(f"{running.base_url}/v1", **options(running))
    assert keeper.require().key_config.kem_id == KEM_XWING


def test_a_wrong_key_is_the_gateways_own_refusal(running: Installation) -> None:
    url = f"{running.base_url}/v1"
    http: Any = attested_client(url, **options(running))
    with (
        openai.OpenAI(
            base_url=url, api_key="sk-starshade-nobody", http_client=http, max_retries=0
        ) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.models.list()
    assert caught.value.code == "invalid_api_key"


def test_the_production_policy_sends_a_simulated_gateway_nothing(running: Installation) -> None:
    url = f"{running.base_url}/v1"
    with (
        attested_client(url, ca_file=running.config.paths.ca_cert) as client,
        pytest.raises(EvidenceRefused) as caught,
    ):
        client.get(f"{url}/models")
    assert caught.value.code == "untrusted_root"


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Installation]:
    """A gateway that opens nothing."""
    folder = tmp_path_factory.mktemp("blind")
    with installation(folder, tiny_model, gateway__mode="pass-through") as running:
        yield running


def test_through_a_gateway_that_cannot_read(blind: Installation) -> None:
    url = f"{blind.base_url}/v1"
    keeper = gateway_keeper(url, **options(blind), mode="pass-through")
    http: Any = client_over(keeper, url, ca_file=blind.config.paths.ca_cert)
    with openai.OpenAI(base_url=url, api_key=blind.key, http_client=http, max_retries=0) as client:
        whole = client.chat.completions.create(
            model=blind.model, messages=messages(), max_tokens=8, temperature=0
        )
        stream = client.chat.completions.create(
            model=blind.model, messages=messages(), max_tokens=8, temperature=0, stream=True
        )
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == whole.choices[0].message.content
    session = keeper.require()
    assert (session.gateway.mode, session.gateway.ohttp) == ("pass-through", ())
    assert session.sealed_to.replica == "worker-0"
    assert session.receipt_keys != session.gateway.receipt


def test_a_blind_gateway_refuses_a_stranger(blind: Installation) -> None:
    url = f"{blind.base_url}/v1"
    http: Any = attested_client(url, **options(blind))
    with (
        openai.OpenAI(
            base_url=url, api_key="sk-starshade-nobody", http_client=http, max_retries=0
        ) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.chat.completions.create(model=blind.model, messages=messages())
    assert caught.value.code == "invalid_api_key"


def test_who_insists_on_a_blind_gateway_sends_another_one_nothing(running: Installation) -> None:
    url = f"{running.base_url}/v1"
    with (
        attested_client(url, **options(running), mode="pass-through") as client,
        pytest.raises(EvidenceRefused) as caught,
    ):
        client.get(f"{url}/models")
    assert caught.value.code == "session_not_accepted"


def test_who_insists_on_a_model_is_served_no_other(
    running: Installation, blind: Installation, tiny_model: Path
) -> None:
    own = hashlib.sha256(tiny_model.read_bytes()).hexdigest()
    for place in (running, blind):
        url = f"{place.base_url}/v1"
        keeper = gateway_keeper(url, **options(place), weights_sha256=[own, "ab" * 32])
        assert keeper.require().sealed_to.weights_sha256 == (own,)
        other = gateway_keeper(url, **options(place), weights_sha256=["ab" * 32])
        with pytest.raises(EvidenceRefused) as caught:
            other.require()
        assert caught.value.code == "session_not_accepted"
