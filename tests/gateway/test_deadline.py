"""What ends a wait: time, an interruption, or who cancelled it, and is each told apart?"""

import asyncio
from typing import TypeVar

import pytest

from gateway.deadline import Deadline
from gateway.drain import Drain
from gateway.problems import GatewayError
from tests.support.virtual_time import in_virtual_time

T = TypeVar("T")


async def code_of(work: "asyncio.Future[T]") -> str:
    with pytest.raises(GatewayError) as caught:
        await work
    return caught.value.code


@in_virtual_time
async def test_one_time_for_all_that_is_awaited() -> None:
    deadline = Deadline(0.2, Drain(drain_s=0))
    for _ in range(3):
        assert await deadline.run(asyncio.sleep(0.01, "done")) == "done"
    waiting = asyncio.ensure_future(deadline.run(asyncio.sleep(10)))
    await asyncio.sleep(0)
    assert deadline.is_awaiting
    assert await code_of(waiting) == "request_timeout"
    assert not deadline.is_awaiting


@in_virtual_time
async def test_what_is_there_already_may_be_taken_after_it() -> None:
    deadline = Deadline(0.0, Drain(drain_s=0))
    await asyncio.sleep(0.01)
    ready = asyncio.get_running_loop().create_future()
    ready.set_result(1)
    assert await deadline.run(ready) == 1
    assert await code_of(asyncio.ensure_future(deadline.run(asyncio.sleep(10)))) == (
        "request_timeout"
    )
    await asyncio.sleep(0)  # nothing of it is left in this task


async def test_an_interruption_ends_what_waits_and_what_will() -> None:
    deadline = Deadline(10, Drain(drain_s=0))
    waiting = asyncio.ensure_future(deadline.run(asyncio.sleep(10)))
    await asyncio.sleep(0)
    deadline.interrupt(GatewayError("overloaded", "x"))
    assert await code_of(waiting) == "overloaded"
    assert await code_of(asyncio.ensure_future(deadline.run(asyncio.sleep(10)))) == "overloaded"


async def test_a_cancellation_of_others_stays_one() -> None:
    deadline = Deadline(10, Drain(drain_s=0))
    waiting = asyncio.ensure_future(deadline.run(asyncio.sleep(10)))
    await asyncio.sleep(0)
    waiting.cancel()
    deadline.interrupt(GatewayError("overloaded", "x"))  # at the same moment
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()


async def test_work_that_ends_although_it_was_interrupted() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "done"
        raise AssertionError

    async def twice() -> str:
        said = await deadline.run(stubborn())
        await asyncio.sleep(0.01)  # not cancelled any more
        return said

    deadline = Deadline(10, Drain(drain_s=0))
    waiting = asyncio.ensure_future(twice())
    await asyncio.sleep(0)
    deadline.interrupt(GatewayError("overloaded", "x"))
    assert await waiting == "done"
    assert waiting.cancelling() == 0


@in_virtual_time
async def test_a_closed_one_ends_nothing() -> None:
    drain = Drain(drain_s=0)
    deadline = Deadline(0.01, drain)
    deadline.close()
    assert drain.num_open == 0
    assert await deadline.run(asyncio.sleep(0.05, "done")) == "done"
