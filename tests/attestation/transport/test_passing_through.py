"""A gateway that opens nothing: is each worker behind it verified, and is it told the key alone?"""

import pytest

from attestation.channel import ServerKey
from attestation.transport import EvidenceRefused, GatewayUnavailable
from tests.support.attested_gateway import Running, client_of

SECRET = "the-canary-sings-at-noon"


@pytest.fixture
def blind(running: Running) -> Running:
    running.gateway.mode = "pass-through"
    running.gateway.workers = ("worker-0", "worker-1")
    return running


def test_the_credential_is_outside_and_all_else_inside(blind: Running) -> None:
    with client_of(blind) as client:
        response = client.post(
            f"{blind.url}/x", content=SECRET, headers={"Authorization": "Bearer k"}
        )
    assert response.text == f"POST/v1/x{SECRET}"
    assert blind.gateway.credentials == ["Bearer k"]
    assert "authorization" not in dict(blind.gateway.opened[0].fields)
    assert SECRET.encode() not in blind.gateway.posted[0]


def test_a_gateway_that_opens_is_told_nothing_outside(running: Running) -> None:
    with client_of(running) as client:
        client.get(f"{running.url}/x", headers={"authorization": "Bearer k"})
    assert running.gateway.credentials == [None]


def test_a_worker_that_is_refused_is_passed_over(blind: Running) -> None:
    blind.gateway.flipped_workers = ("worker-0",)
    with client_of(blind) as client:
        assert client.get(f"{blind.url}/x").status_code == 200
    assert blind.gateway.num_attested == 3  # the gateway and both


def test_nothing_is_sent_when_every_worker_is_refused(blind: Running) -> None:
    blind.gateway.flipped_workers = blind.gateway.workers
    with client_of(blind) as client, pytest.raises(EvidenceRefused) as caught:
        client.post(f"{blind.url}/x", content=SECRET)
    assert caught.value.code == "quote_signature"
    assert blind.gateway.posted == []


def test_a_gateway_that_is_refused_is_not_asked_for_its_workers(blind: Running) -> None:
    blind.gateway.flip_bit = True
    with client_of(blind) as client, pytest.raises(EvidenceRefused):
        client.get(f"{blind.url}/x")
    assert blind.gateway.num_attested == 1


def test_a_worker_that_is_not_in_the_mode_is_refused(blind: Running) -> None:
    """It expects a gateway before it that holds credentials and limits."""
    blind.gateway.worker_mode = "terminate"
    with client_of(blind) as client, pytest.raises(EvidenceRefused) as caught:
        client.get(f"{blind.url}/x")
    assert caught.value.code == "session_not_accepted"
    assert blind.gateway.posted == []


def test_a_worker_that_is_of_no_use_is_passed_over(blind: Running) -> None:
    """Its verdict accepts, and what it attests is not what is needed: mode, weights, keys."""
    blind.gateway.worker_modes = {"worker-0": "terminate"}
    with client_of(blind) as client:
        assert client.get(f"{blind.url}/x").status_code == 200


def test_another_mode_than_the_one_insisted_on_is_told_without_asking_workers(
    blind: Running,
) -> None:
    with client_of(blind, mode="terminate") as client, pytest.raises(EvidenceRefused):
        client.get(f"{blind.url}/x")
    assert blind.gateway.num_attested == 1


def test_a_worker_that_works_is_found_behind_many_that_do_not(blind: Running) -> None:
    """A name that no configuration can have is not repeated."""
    dead = tuple(f"dead-{number}" for number in range(64))
    blind.gateway.workers = (*dead, "\x1b[2J", "worker-0")
    blind.gateway.dead_workers = dead
    with client_of(blind) as client:
        assert client.get(f"{blind.url}/x").status_code == 200
    assert blind.gateway.num_attested == 2


def test_keys_of_nobody_attested_are_not_sealed_to(blind: Running) -> None:
    blind.gateway.attested = ServerKey.generate(key_id=9)
    with client_of(blind) as client, pytest.raises(EvidenceRefused) as caught:
        client.get(f"{blind.url}/x")
    assert caught.value.code == "key_config_error"


def test_without_a_worker_there_is_no_verdict(running: Running) -> None:
    running.gateway.mode = "pass-through"
    with client_of(running) as client, pytest.raises(GatewayUnavailable):
        client.get(f"{running.url}/x")
