"""When is a worker asked, kept, dropped and asked again?  A scripted worker and a clock by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from attestation.channel import Lease, ServerKey
from gateway.observe import AttestFacts, Clocks
from gateway.problems import GatewayError
from gateway.sealed import WorkerClient
from gateway.workers import LAST_RETRY, Grant, VerdictRefused, WorkerDirectory

START = datetime(2026, 1, 1, tzinfo=UTC)
TERM = timedelta(seconds=300)
KEY = ServerKey.generate(key_id=1).config


class Clock:
    now = START

    def __call__(self) -> datetime:
        return self.now


class ScriptedWorker:
    """Grants, unless `failure` says otherwise; counts how often it was asked."""

    def __init__(self, name: str, clock: Clock, *, models: tuple[str, ...] = ("m",)) -> None:
        self.name = name
        self.clock = clock
        self.models = models
        self.replica = name
        self.failure: Exception | None = None
        self.num_asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def attest(self, *, node: str, epoch: int) -> Grant:
        self.num_asked += 1
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        lease = Lease(
            verdict_id=f"{self.name}-{self.num_asked}",
            node=node,
            evidence_digest="00" * 32,
            key_config=KEY,
            keyset_digest="00" * 32,
            policy_sha256="00" * 32,
            epoch=epoch,
            not_before=self.clock(),
            not_after=self.clock() + TERM,
            tier="warning",
            simulated=True,
        )
        client = WorkerClient("unix:/nowhere")
        return Grant(
            lease=lease,
            client=client,
            replica=self.replica,
            models=self.models,
            facts=facts(None),
        )

    async def evidence(self, nonce_hex: str) -> bytes:
        return nonce_hex.encode()


def facts(code: str | None) -> AttestFacts:
    return AttestFacts(worker_id="w", started_ns=0, ended_ns=0, error_code=code)


def refused(code: str) -> VerdictRefused:
    return VerdictRefused(code, facts(code))


UNREACHABLE = GatewayError("upstream_unavailable", "away")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> ScriptedWorker:
    return ScriptedWorker("w", clock)


Make = Callable[..., WorkerDirectory]


@pytest.fixture
async def make(clock: Clock) -> AsyncIterator[Make]:
    made: list[WorkerDirectory] = []

    def make(
        *workers: ScriptedWorker, report: Callable[[AttestFacts], None] = lambda _: None
    ) -> WorkerDirectory:
        directory = WorkerDirectory(
            [(worker.name, worker) for worker in workers],
            utc_now=clock,
            clocks=Clocks(monotonic_ns=lambda: 0, unix_ns=lambda: 0),
            jitter=lambda: 0.0,
            report=report,
        )
        made.append(directory)
        return directory

    yield make
    for directory in made:
        await directory.stop()


async def refusal(directory: WorkerDirectory, model: str = "m") -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await directory.node_for(model)
    return caught.value


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
    ("code", "is_cut"), [("debug_enabled", True), ("collateral_expired", False)]
)
async def test_a_verdict_cuts_the_streams_of_earlier_leases_too(
    make: Make, worker: ScriptedWorker, code: str, is_cut: bool
) -> None:
    directory = make(worker)
    node = await directory.node_for("m")
    client = directory.require_lease(node).client
    client.num_open += 1
    await directory.reattest(node)
    assert directory.require_lease(node).client is not client
    worker.failure = refused(code)
    await directory.reattest(node)
    assert client._http.is_closed is is_cut
    await client.abort()


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
    directory.suspect(node)
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


async def test_the_least_busy_worker_is_chosen(
    make: Make, worker: ScriptedWorker, clock: Clock
) -> None:
    directory = make(worker, ScriptedWorker("w2", clock))
    await asyncio.gather(*(directory.reattest(node) for node in directory.nodes))
    first = await directory.node_for("m")
    assert first.grant is not None
    first.grant.client.num_open += 1
    assert (await directory.node_for("m")) is not first
    first.grant.client.num_open -= 1


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


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_true():
            await asyncio.sleep(0.001)
