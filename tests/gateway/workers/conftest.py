"""Directories of scripted workers, each stopped when its test ends."""

from collections.abc import AsyncIterator, Callable

import pytest

from gateway.facts import AttestFacts
from gateway.observe import Clocks
from gateway.workers import WorkerDirectory
from tests.gateway.workers.scripted import DRAIN_S, Clock, Make, ScriptedWorker


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> ScriptedWorker:
    return ScriptedWorker("w", clock)


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
            drain_s=DRAIN_S,
        )
        made.append(directory)
        return directory

    yield make
    for directory in made:
        await directory.stop()
