"""Which worker do these tests attest?  One that does what its script says, at a clock's time."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from attestation.channel import Lease, ServerKey
from gateway.facts import AttestFacts
from gateway.problems import GatewayError
from gateway.sealed import WorkerClient
from gateway.worker_node import Grant, VerdictRefused
from gateway.workers import WorkerDirectory
from tests.support.patience import PATIENCE_S

START = datetime(2026, 1, 1, tzinfo=UTC)
TERM = timedelta(seconds=300)
DRAIN_S = 0.05
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
        self.key = KEY
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
            key_config=self.key,
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
Make = Callable[..., WorkerDirectory]


async def refusal(directory: WorkerDirectory, model: str = "m") -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await directory.node_for(model)
    return caught.value


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():
            await asyncio.sleep(0.001)
