"""When is a worker asked, kept, dropped and asked again?"""

import asyncio
from datetime import timedelta

import pytest

from gateway.facts import AttestFacts
from gateway.problems import GatewayError
from gateway.worker_node import NoVerdict
from tests.gateway.workers.scripted import (
    START,
    TERM,
    UNREACHABLE,
    Clock,
    Make,
    ScriptedWorker,
    refusal,
    refused,
    until,
)


async def test_a_request_may_be_the_first_to_ask(make: Make, worker: ScriptedWorker) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    assert directory.require_lease(node).lease.verdict_id == "w-1"
    assert directory.readiness() is None


async def test_many_requests_ask_once(make: Make, worker: ScriptedWorker) -> None:
    directory = make(worker)
    await asyncio.gather(*(directory.node_for("m") for _ in range(50)))
    assert worker.num_asked == 1


async def test_a_worker_that_left_a_request_unanswered_attests_before_the_next(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    directory.distrust(node)
    assert directory.readiness() is not None
    worker.failure = UNREACHABLE
    assert (await refusal(directory)).code == "upstream_unavailable"
    assert directory.require_lease(node).lease.verdict_id == "w-1"  # streams go on
    worker.failure = None
    await directory.reattest(node)
    assert (await directory.node_for("m")) is node
    assert directory.require_lease(node).lease.verdict_id == "w-3"
    assert directory.readiness() is None


async def test_whether_a_worker_lives_is_asked_only_when_it_has_not_attested_since(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    assert await directory.is_alive(node, since=START)
    assert worker.num_asked == 1
    clock.now += timedelta(seconds=90)
    since = clock.now - timedelta(seconds=60)
    assert all(await asyncio.gather(*(directory.is_alive(node, since=since) for _ in range(9))))
    assert worker.num_asked == 2
    clock.now += timedelta(seconds=90)
    worker.failure = UNREACHABLE
    assert not await directory.is_alive(node, since=clock.now)


async def test_a_worker_lives_that_gives_its_evidence_although_a_vendor_is_away(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    clock.now += timedelta(seconds=90)
    worker.failure = NoVerdict("upstream_unavailable", "no CRL", detail_code="crl_missing")
    assert await directory.is_alive(node, since=clock.now)
    assert worker.num_asked == 2
    assert directory.readiness() is None
    assert directory.require_lease(node).lease.verdict_id == "w-1"
    worker.failure = UNREACHABLE
    assert not await directory.is_alive(node, since=clock.now)
    assert directory.readiness() is not None


async def test_a_worker_that_was_removed_is_asked_no_more(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    """Its streams still run: one may fall silent, and one may meet another key."""
    report: list[AttestFacts] = []
    directory = make(worker, report=report.append)
    node = await directory.node_for("m")
    await directory.remove(node)
    await directory.reattest(node)
    assert await directory.is_alive(node, since=clock.now + TERM)
    assert (worker.num_asked, len(report), node.grant) == (1, 1, None)
    with pytest.raises(GatewayError):
        directory.require_lease(node)


async def test_an_unreachable_worker_keeps_its_lease_to_the_end(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    worker.failure = UNREACHABLE
    clock.now += 0.9 * TERM
    await directory.reattest(node)
    assert directory.require_lease(node).lease.verdict_id == "w-1"
    assert (await directory.node_for("m")) is node
    clock.now = START + TERM
    with pytest.raises(GatewayError) as caught:
        directory.require_lease(node)
    assert caught.value.code == "upstream_unavailable"


async def test_a_worker_that_does_not_answer_is_not_ready_although_leased(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    worker.failure = UNREACHABLE
    await directory.reattest(node)
    reason = directory.readiness()
    assert reason is not None
    assert (reason.code, reason.detail_code) == ("upstream_unavailable", "upstream_unavailable")


async def test_a_negative_verdict_ends_the_lease_at_once(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    report: list[AttestFacts] = []
    directory = make(worker, report=report.append)
    node = await directory.node_for("m")
    worker.failure = refused("debug_enabled")
    await directory.reattest(node)
    with pytest.raises(GatewayError) as caught:
        directory.require_lease(node)
    assert caught.value.code == "upstream_verification_failed"
    assert caught.value.detail_code == "debug_enabled"
    assert "debug_enabled" in caught.value.message
    assert (await refusal(directory)).code == "upstream_verification_failed"
    assert worker.num_asked == 2  # a quarantined worker is not asked by requests
    assert [f.error_code for f in report] == [None, "debug_enabled"]
    assert node.grant is None


@pytest.mark.parametrize(
    ("code", "verdict_class"), [("debug_enabled", "A"), ("collateral_expired", "B")]
)
async def test_a_verdict_ends_the_streams_of_earlier_leases_too(
    make: Make, worker: ScriptedWorker, code: str, verdict_class: str
) -> None:
    """At once by class A, after a while by class B."""
    directory = make(worker)
    node = await directory.node_for("m")
    client = directory.require_lease(node).client
    client.num_open += 1
    await directory.reattest(node)
    assert directory.require_lease(node).client is not client
    worker.failure = refused(code)
    await directory.reattest(node)
    assert client.revocation is not None
    assert (client.revocation.code, client.revocation.verdict_class) == (code, verdict_class)
    assert client._http.is_closed is (verdict_class == "A")
    await until(lambda: client._http.is_closed)
    assert client.failure(UNREACHABLE).code == "upstream_verification_failed"
    assert client.failure(UNREACHABLE).detail_code == code


async def test_streams_of_a_lease_that_ran_out_get_their_time(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    client = directory.require_lease(node).client
    client.num_open += 1
    worker.failure = UNREACHABLE
    directory.start()
    clock.now += TERM
    node.wake.set()
    await until(lambda: client.revocation is not None)
    assert (client.revocation and client.revocation.code) == "lease_expired"
    assert not client._http.is_closed
    await until(lambda: client._http.is_closed)


async def test_an_epoch_ends_every_lease_but_no_stream(make: Make, worker: ScriptedWorker) -> None:
    directory = make(worker)
    directory.start()
    node = await directory.node_for("m")
    client = directory.require_lease(node).client
    client.num_open += 1
    worker.may_answer.clear()
    directory.advance_epoch()
    assert directory.readiness() is not None
    with pytest.raises(GatewayError):
        directory.require_lease(node)
    worker.may_answer.set()
    assert (await directory.node_for("m")) is node
    lease = directory.require_lease(node).lease
    assert (lease.epoch, lease.verdict_id) == (1, "w-2")
    assert not client._http.is_closed
    worker.failure = refused("debug_enabled")
    await directory.reattest(node)
    assert client._http.is_closed


async def test_an_answer_that_was_asked_for_before_the_epoch_counts_for_nothing(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    worker.may_answer.clear()
    asked = asyncio.ensure_future(directory.node_for("m"))
    await until(lambda: worker.num_asked == 1)
    directory.advance_epoch()
    directory.start()
    worker.may_answer.set()
    await asked
    assert directory.require_lease(directory.nodes[0]).lease.epoch == 1


async def test_a_quarantine_ends_with_a_positive_verdict(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    worker.failure = refused("untrusted_root")
    assert (await refusal(directory)).code == "upstream_verification_failed"
    worker.failure = None
    await directory.reattest(directory.nodes[0])
    assert (await directory.node_for("m")).id == "w"


async def test_the_keeper_refreshes_when_due_and_not_before(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker)
    directory.start()
    node = await directory.node_for("m")
    assert node.machine.refresh_due == START + 0.8 * TERM
    node.wake.set()
    await asyncio.sleep(0.01)
    assert worker.num_asked == 1
    clock.now += 0.81 * TERM
    node.wake.set()
    await until(lambda: worker.num_asked == 2)
    await until(lambda: directory.require_lease(node).lease.verdict_id == "w-2")


async def test_a_suspect_is_asked_again_although_not_due(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    directory.start()
    node = await directory.node_for("m")
    directory.failed(node)
    await until(lambda: worker.num_asked == 2)


async def test_a_bug_in_attestation_grants_nothing_and_kills_no_keeper(
    make: Make, worker: ScriptedWorker
) -> None:
    directory = make(worker)
    worker.failure = KeyError("bug")
    assert (await refusal(directory)).code == "upstream_unavailable"
    worker.failure = None
    await directory.reattest(directory.nodes[0])
    assert (await directory.node_for("m")).id == "w"


async def test_a_report_that_fails_kills_no_keeper(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    is_broken = True

    def report(_facts: AttestFacts) -> None:
        if is_broken:
            raise ValueError("no span")

    directory = make(worker, report=report)
    directory.start()
    await until(lambda: worker.num_asked >= 1)
    await asyncio.sleep(0.01)
    is_broken = False
    clock.now += 0.9 * TERM
    directory.nodes[0].wake.set()
    await until(lambda: worker.num_asked >= 2)
    assert (await directory.node_for("m")).id == "w"
