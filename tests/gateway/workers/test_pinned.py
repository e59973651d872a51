"""Does what a client pinned hold for the verdict that its request is sealed under?"""

import pytest

from gateway.auth import Principal
from gateway.drain import Drain
from gateway.problems import GatewayError
from tests.gateway.test_relay import CALL, make_relay, make_trace
from tests.gateway.workers.scripted import Make, ScriptedWorker


@pytest.mark.parametrize("name", ["weights_sha256", "policy_sha256"])
async def test_a_worker_that_was_not_verified_when_the_request_came(
    make: Make, worker: ScriptedWorker, name: str
) -> None:
    relay = make_relay(Drain(drain_s=0), directory=make(worker))
    principal = Principal(key_id="k", tenant="acme")
    with pytest.raises(GatewayError) as caught:
        await relay.open(CALL, principal, make_trace(), pins={name: frozenset({"cd" * 32})})
    assert (worker.num_asked, caught.value.code) == (1, "session_not_accepted")
