"""Is a worker that sends nothing told apart from one that is merely busy?"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from attestation.channel import LeaseMachine
from gateway.app import GatewayApp
from gateway.drain import Drain
from gateway.exchange import Exchange
from gateway.problems import GatewayError
from gateway.sealed import SealedExchange
from gateway.worker_load import Ticket, WorkerLoad
from gateway.worker_node import WorkerAttestation, WorkerNode
from gateway.workers import WorkerDirectory
from runtime.plan import StepPlan
from tests.gateway.support import HashEngine, chat_body, error_of, running_stack
from tests.gateway.test_relay import END, TEXT, make_exchange
from tests.support.patience import PATIENCE_S
from tests.support.virtual_time import in_virtual_time

NODE = WorkerNode(
    name="w", attestation=cast(WorkerAttestation, None), machine=LeaseMachine(node="w")
)
SILENCE_S = 0.2


class ScriptedDirectory:
    """Says of the worker what it was told to; counts how often it was asked."""

    def __init__(self, *, is_alive: bool) -> None:
        self.alive = is_alive
        self.num_asked = self.num_distrusted = 0

    async def is_alive(self, _node: WorkerNode, *, since: datetime) -> bool:
        assert since.tzinfo is not None
        self.num_asked += 1
        return self.alive

    def distrust(self, _node: WorkerNode, _ticket: Ticket | None = None) -> None:
        self.num_distrusted += 1

    def failed(self, _node: WorkerNode, _ticket: Ticket) -> None:
        pytest.fail("the silence says enough")

    def dispatched(self, _node: WorkerNode, *, tokens: int) -> Ticket:
        return WorkerLoad().open(tokens, 0)

    def left(self, _node: WorkerNode, ticket: Ticket) -> None:
        ticket.close()

    def succeeded(self, _node: WorkerNode) -> None:
        pass


def waiting(directory: ScriptedDirectory, *, is_streamed: bool = True) -> Exchange:
    return make_exchange(
        Drain(drain_s=0),
        silence_s=SILENCE_S,
        directory=cast(WorkerDirectory, directory),
        is_streamed=is_streamed,
    )


async def outcome(exchange: Exchange, wait_s: float) -> str:
    """Waits for a head that comes after `wait_s`; the error's code, or `answered`."""

    async def head() -> None:
        exchange.watch(NODE)
        await asyncio.sleep(wait_s)

    try:
        await exchange.run(head())
    except GatewayError as err:
        return err.code
    finally:
        await exchange.aclose()
    return "answered"


@in_virtual_time
async def test_a_stream_without_a_head_is_given_up_without_asking() -> None:
    directory = ScriptedDirectory(is_alive=True)
    assert await outcome(waiting(directory), 10) == "request_timeout"
    assert (directory.num_asked, directory.num_distrusted) == (0, 1)


@in_virtual_time
async def test_a_whole_answer_may_take_long_while_the_worker_lives() -> None:
    directory = ScriptedDirectory(is_alive=True)
    assert await outcome(waiting(directory, is_streamed=False), 5 * SILENCE_S) == "answered"
    assert directory.num_asked >= 2
    assert directory.num_distrusted == 0


@in_virtual_time
async def test_a_whole_answer_is_given_up_when_the_worker_is_stuck() -> None:
    directory = ScriptedDirectory(is_alive=False)
    assert await outcome(waiting(directory, is_streamed=False), 10) == "request_timeout"
    assert (directory.num_asked, directory.num_distrusted) == (1, 1)


class PausingExchange:
    """Sends one event, is silent for `pause_s`, then ends."""

    status = 200

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.rest = self.content()

    async def read(self) -> bytes | None:
        return await anext(self.rest, None)

    async def content(self) -> AsyncGenerator[bytes, None]:
        yield TEXT
        await asyncio.sleep(self.pause_s)
        yield END + b"data: [DONE]\n\n"

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("is_alive", "pause_s", "read_s", "last"),
    [
        (True, 5 * SILENCE_S, 0, b"[DONE]"),
        (False, 10, 0, b"request_timeout"),
        (False, 0, 5 * SILENCE_S, b"[DONE]"),
    ],
    ids=["busy worker", "stuck worker", "slow client"],
)
@in_virtual_time
async def test_silence_within_a_stream(
    is_alive: bool, pause_s: float, read_s: float, last: bytes
) -> None:
    exchange = waiting(ScriptedDirectory(is_alive=is_alive))
    exchange.watch(NODE)
    exchange.begin(cast(SealedExchange, PausingExchange(pause_s)))
    told = b""
    async for data in exchange.events():
        told += data
        await asyncio.sleep(read_s)
    await exchange.aclose()
    assert last in told


def test_a_stuck_engine_ends_the_stream_that_waits_for_its_head_and_no_other(
    tmp_path: Path,
) -> None:
    engine, may_go_on = HashEngine(), threading.Event()
    may_go_on.set()

    def hold(_plan: StepPlan) -> None:
        time.sleep(0.01)
        may_go_on.wait(PATIENCE_S)

    engine.runner.before_run = hold
    long = chat_body(stream=True, max_tokens=100, ignore_eos=True)
    with running_stack(tmp_path, engine=engine, gateway__worker_silence_s=1) as stack:
        app: GatewayApp = stack.gateway.app
        (node,) = app.services.directory.nodes
        before = node.grant
        with stack.client.stream("POST", "/v1/chat/completions", json=long) as running:
            lines = running.iter_lines()
            next(lines)
            may_go_on.clear()
            try:
                refused = stack.chat(stream=True)
            finally:
                may_go_on.set()
            assert (refused.status_code, error_of(refused)["code"]) == (408, "request_timeout")
            assert stack.chat().status_code == 200  # by a worker that has attested again
            assert node.grant is not before
            assert "data: [DONE]" in list(lines)
