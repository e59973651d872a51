"""A worker that keeps a sealed request waiting: what ends the exchange, and as what?"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request
from starlette.types import Message

from gateway.deadline import Deadline
from gateway.drain import Drain
from gateway.passthrough import _BlindExchange
from gateway.problems import GatewayError
from gateway.sealed import WorkerClient
from gateway.workers import WorkerDirectory
from tests.gateway.test_silence import NODE, SILENCE_S, ScriptedDirectory
from tests.support.virtual_time import in_virtual_time


class SilentClient:
    """Takes the whole request, then says nothing for `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    async def post(
        self, _path: str, body: AsyncIterator[bytes], *, media_type: str
    ) -> SimpleNamespace:
        async for _ in body:
            pass
        await asyncio.sleep(self.wait_s)
        return SimpleNamespace(status=200, fields={"content-type": media_type})

    def release(self, _response: object) -> None: ...


async def outcome(
    directory: ScriptedDirectory, drain: Drain, *, wait_s: float, send_s: float = 0
) -> str:
    async def receive() -> Message:
        await asyncio.sleep(30)
        raise AssertionError

    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(send_s)

    exchange = _BlindExchange(cast(WorkerClient, SilentClient(wait_s)), Deadline(10, drain))
    exchange.watch(
        NODE,
        cast(WorkerDirectory, directory),
        silence_s=SILENCE_S,
        utc_now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )
    try:
        answer = await exchange.open(Request({"type": "http"}, receive), body(), "x/y")
    except GatewayError as err:
        return err.code
    await answer.on_close()
    return "answered"


@pytest.mark.parametrize(("is_alive", "code"), [(True, "answered"), (False, "request_timeout")])
@in_virtual_time
async def test_a_worker_that_sends_nothing_is_asked_whether_it_lives(
    is_alive: bool, code: str
) -> None:
    directory = ScriptedDirectory(is_alive=is_alive)
    wait_s = 5 * SILENCE_S if is_alive else 10
    assert await outcome(directory, Drain(drain_s=0), wait_s=wait_s) == code
    assert (directory.num_asked > 0, directory.num_distrusted) == (True, int(not is_alive))


@in_virtual_time
async def test_a_client_that_sends_slowly_is_no_silence_of_the_worker() -> None:
    directory = ScriptedDirectory(is_alive=False)
    told = await outcome(directory, Drain(drain_s=0), wait_s=0, send_s=5 * SILENCE_S)
    assert (told, directory.num_asked) == ("answered", 0)


@in_virtual_time
async def test_a_gateway_that_stops_says_so() -> None:
    drain = Drain(drain_s=0)
    directory = ScriptedDirectory(is_alive=True)
    waiting = asyncio.ensure_future(outcome(directory, drain, wait_s=10))
    await asyncio.sleep(SILENCE_S / 2)
    drain.begin()
    assert await waiting == "server_stopping"
    assert drain.num_open == 0
