"""Do several generations look like one, and does none outlive the others' failure?"""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from gateway.problems import GatewayError
from gateway.worker.generation import Generation
from gateway.worker.group import GenerationGroup
from runtime import Delta


class ScriptedGeneration:
    """Says `texts`, then fails as told; remembers whether it was entered and left."""

    def __init__(self, *texts: str, refusal: str | None = None, failure: str | None = None) -> None:
        self.texts = texts
        self.refusal = refusal
        self.failure = failure
        self.num_entered = self.num_left = self.num_said = 0

    async def __aenter__(self) -> "ScriptedGeneration":
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise GatewayError(self.refusal, "no")
        self.num_entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.num_left += 1

    async def deltas(self) -> AsyncIterator[Delta]:
        for text in self.texts:
            await asyncio.sleep(0)
            self.num_said += 1
            yield Delta(request_id="r", token_ids=(1,), text=text)
        if self.failure is not None:
            raise GatewayError(self.failure, "no")


def group(*scripted: ScriptedGeneration) -> GenerationGroup:
    return GenerationGroup([cast(Generation, one) for one in scripted])


async def hear_all(running: GenerationGroup) -> list[tuple[int, str]]:
    async with running:
        return [(index, delta.text) async for index, delta in running.deltas()]


@pytest.mark.parametrize("num", [1, 2, 5])
async def test_each_is_heard_in_its_own_order(num: int) -> None:
    scripted = [ScriptedGeneration("a", "b", f"{index}") for index in range(num)]
    heard = [""] * num
    for index, text in await hear_all(group(*scripted)):
        heard[index] += text
    assert heard == [f"ab{index}" for index in range(num)]
    assert [one.num_left for one in scripted] == [1] * num


async def test_a_refusal_of_one_leaves_none_behind() -> None:
    taken, refused = ScriptedGeneration("a"), ScriptedGeneration(refusal="overloaded")
    with pytest.raises(GatewayError, match="no"):
        await group(taken, refused).__aenter__()
    assert (taken.num_entered, taken.num_left) == (1, 1)
    assert refused.num_left == 0


async def test_leaving_while_they_are_taken_leaves_none_behind() -> None:
    scripted = [ScriptedGeneration("a") for _ in range(3)]
    entering = asyncio.ensure_future(group(*scripted).__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert [one.num_left for one in scripted] == [one.num_entered for one in scripted]


async def test_a_failure_of_one_is_the_failure_of_all() -> None:
    scripted = [ScriptedGeneration(*"abcdefgh"), ScriptedGeneration("a", failure="slow_reader")]
    with pytest.raises(GatewayError) as caught:
        await hear_all(group(*scripted))
    assert caught.value.code == "slow_reader"
    assert [one.num_left for one in scripted] == [1, 1]


async def test_what_nobody_reads_is_not_taken_from_them() -> None:
    scripted = [ScriptedGeneration(*"abcdefgh") for _ in range(2)]
    async with group(*scripted) as running:
        deltas = running.deltas()
        await anext(deltas)
        for _ in range(50):
            await asyncio.sleep(0)
        assert sum(one.num_said for one in scripted) <= 4
