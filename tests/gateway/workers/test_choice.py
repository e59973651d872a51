"""Which worker does a request get, by which name is it known, and what if there is none?"""

import asyncio

from attestation.channel import ServerKey
from gateway.drain import Drain
from gateway.facts import AttestFacts
from gateway.leases import LAST_RETRY
from gateway.worker_load import FAILURES_TO_OPEN
from tests.gateway.test_relay import make_exchange
from tests.gateway.workers.scripted import (
    TERM,
    UNREACHABLE,
    Clock,
    Make,
    ScriptedWorker,
    refusal,
    refused,
    until,
)


async def test_an_unverified_worker_is_never_chosen_beside_a_verified_one(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    bad = ScriptedWorker("bad", clock, models=("m", "secret"))
    bad.failure = refused("untrusted_root")
    directory = make(worker, bad)
    await asyncio.gather(*(directory.reattest(node) for node in directory.nodes))
    assert {(await directory.node_for("m")).id for _ in range(5)} == {"w"}
    assert (await refusal(directory, "secret")).code == "model_not_found"
    assert await directory.models() == ("m",)


async def test_a_model_whose_only_worker_is_down_is_unavailable_not_unknown(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    other = ScriptedWorker("other", clock, models=("rare",))
    directory = make(worker, other)
    assert not directory.knows("rare")
    await asyncio.gather(*(directory.reattest(node) for node in directory.nodes))
    assert directory.knows("rare")
    other.failure = refused("debug_enabled")
    await directory.reattest(directory.nodes[1])
    refusal_now = await refusal(directory, "rare")
    assert (refusal_now.code, refusal_now.detail_code) == (
        "upstream_verification_failed",
        "debug_enabled",
    )
    other.failure = None
    await directory.reattest(directory.nodes[1])
    other.failure = UNREACHABLE
    clock.now += TERM
    await directory.reattest(directory.nodes[0])
    assert (await refusal(directory, "rare")).code == "upstream_unavailable"
    assert (await refusal(directory, "never")).code == "model_not_found"
    assert (await directory.node_for("m")).id == "w"
    other.failure = None
    clock.now += LAST_RETRY
    assert (await directory.node_for("rare")).id == "other"  # the request itself asked again


async def test_a_worker_that_now_serves_another_model_has_given_the_first_one_up(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    assert (await directory.node_for("m")).id == "w"
    worker.models = ("n",)
    await directory.reattest(directory.nodes[0])
    assert (await refusal(directory, "m")).code == "model_not_found"


async def test_a_worker_is_known_by_what_it_attests(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    report: list[AttestFacts] = []
    directory = make(worker, report=report.append)
    worker.replica, worker.failure = "replica-7", UNREACHABLE
    await directory.reattest(directory.nodes[0])
    worker.failure = None
    clock.now += LAST_RETRY
    node = await directory.node_for("m")
    assert (node.id, directory.find("replica-7"), directory.find("w")) == ("replica-7", node, None)
    worker.failure = refused("debug_enabled")
    await directory.reattest(node)
    assert [f.worker_id for f in report] == ["w", "replica-7", "replica-7"]


async def test_a_worker_may_not_become_another_one(make: Make, worker: ScriptedWorker) -> None:
    report: list[AttestFacts] = []
    directory = make(worker, report=report.append)
    await directory.node_for("m")
    worker.replica = "someone-else"
    await directory.reattest(directory.nodes[0])
    refusal_now = await refusal(directory)
    assert (refusal_now.code, refusal_now.detail_code) == (
        "upstream_verification_failed",
        "replica_mismatch",
    )
    assert [(f.worker_id, f.error_code) for f in report] == [
        ("w", None),
        ("w", "replica_mismatch"),
    ]


async def test_two_workers_may_not_be_the_same_one(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    twin = ScriptedWorker("twin", clock)
    twin.replica = worker.replica
    directory = make(worker, twin)
    await directory.reattest(directory.nodes[0])
    await directory.reattest(directory.nodes[1])
    assert directory.nodes[1].machine.quarantine_code == "replica_mismatch"
    assert (await directory.node_for("m")) is directory.nodes[0]


async def test_a_name_not_yet_attested_hides_no_worker_that_attests_it(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    attested = ScriptedWorker("elsewhere", clock)
    attested.replica = "w"
    directory = make(worker, attested)
    await directory.reattest(directory.nodes[1])
    assert directory.find("w") is directory.nodes[1]


async def test_the_worker_that_is_expected_to_answer_first_is_chosen(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker, ScriptedWorker("w2", clock))
    await asyncio.gather(*(directory.reattest(node) for node in directory.nodes))
    first = await directory.node_for("m", tokens=10)
    ticket = directory.dispatched(first, tokens=10)
    assert (await directory.node_for("m", tokens=10)) is not first
    ticket.close()
    assert (await directory.node_for("m", tokens=10)) is first


async def test_another_worker_is_one_that_was_not_tried_and_is_verified_now(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker, ScriptedWorker("w2", clock))
    await asyncio.gather(*(directory.reattest(node) for node in directory.nodes))
    first, second = directory.nodes
    assert directory.other_for("m", tokens=1, tried=[first]) is second
    assert directory.other_for("m", tokens=1, tried=[first, second]) is None
    clock.now += TERM
    assert directory.other_for("m", tokens=1, tried=[first]) is None


async def test_a_worker_that_fails_its_requests_gets_no_more_although_it_attests(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    other = ScriptedWorker("w2", clock)
    directory = make(worker, other)
    await asyncio.gather(*(directory.reattest(node) for node in directory.nodes))
    first, second = directory.nodes
    for _ in range(FAILURES_TO_OPEN):
        directory.failed(first)
    await directory.reattest(first)
    assert {(await directory.node_for("m")).id for _ in range(5)} == {"w2"}
    for _ in range(FAILURES_TO_OPEN):
        directory.failed(second)
    refusal_now = await refusal(directory)
    assert (refusal_now.code, refusal_now.detail_code) == ("upstream_unavailable", "circuit_open")
    worker.key = ServerKey.generate(key_id=2).config
    await directory.reattest(first)
    assert (await directory.node_for("m")) is first  # it began anew


async def test_a_try_ends_when_its_request_goes_to_another_worker(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker, ScriptedWorker("w2", clock))
    first, second = directory.nodes
    for _ in range(FAILURES_TO_OPEN):
        directory.failed(first)
    first.breaker.pause_ns = 0
    exchange = make_exchange(Drain(drain_s=0), directory=directory)
    exchange.watch(first)
    assert not first.breaker.allows(0)
    exchange.watch(second)  # the first one was full
    assert first.breaker.allows(0)
    await exchange.aclose()


async def test_a_request_waits_for_the_slower_worker_when_the_quicker_one_fails(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    worker.failure = UNREACHABLE
    slow = ScriptedWorker("slow", clock)
    slow.may_answer.clear()
    directory = make(worker, slow)
    wanted = asyncio.ensure_future(directory.node_for("m"))
    await until(lambda: directory.nodes[0].num_failures == 1)
    await asyncio.sleep(0.01)
    slow.may_answer.set()
    assert (await wanted).id == "slow"
