"""Does every answer end when it has to, wherever it is on its way?"""

import asyncio

import pytest

from gateway.connect.streams import Streams
from gateway.problems import GatewayError

FIRST = GatewayError("upstream_verification_failed", "first")
SECOND = GatewayError("upstream_verification_failed", "second")


async def wait_in(streams: Streams) -> GatewayError:
    stream = streams.open()
    with pytest.raises(GatewayError) as caught:
        async with stream.interruptible():
            await asyncio.sleep(10)
    stream.close()
    return caught.value


async def test_two_interrupts_at_once_end_every_answer() -> None:
    streams = Streams()
    waiting = [asyncio.ensure_future(wait_in(streams)) for _ in range(3)]
    await asyncio.sleep(0)
    streams.interrupt(FIRST)
    await asyncio.sleep(0)  # the first have expired by now, and not ended yet
    streams.interrupt(SECOND)
    assert await asyncio.gather(*waiting) == [FIRST] * 3


async def test_an_interrupt_between_head_and_body_ends_the_body() -> None:
    streams = Streams()
    stream = streams.open()
    async with stream.interruptible():
        pass
    streams.interrupt(FIRST)
    with pytest.raises(GatewayError):
        async with stream.interruptible():
            await asyncio.sleep(10)


async def test_a_delayed_end_is_for_those_that_are_open_and_a_sooner_one_outranks_it() -> None:
    streams = Streams()
    waiting = asyncio.ensure_future(wait_in(streams))
    await asyncio.sleep(0)
    streams.interrupt(FIRST, after_s=5)
    streams.interrupt(SECOND, after_s=0.01)
    late = streams.open()
    assert await waiting is SECOND
    async with late.interruptible():
        await asyncio.sleep(0.01)
    assert streams.num_open == 1
    late.close()
    assert streams.num_open == 0


async def test_a_time_out_of_the_work_itself_stays_one() -> None:
    stream = Streams().open()
    with pytest.raises(TimeoutError):
        async with stream.interruptible():
            raise TimeoutError
