"""How do the several answers to one request run side by side?  As one, in one reader's hand.

Leaving the group early aborts those that are not finished. A reader that falls behind holds up its
own generations only: what waits for it is bounded, as for a single one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from gateway.problems import GatewayError
from gateway.worker.generation import Generation
from runtime import Delta


class GenerationGroup:
    """Generations by index; use as an async context manager."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._generations = generations

    async def __aenter__(self) -> "GenerationGroup":
        """Waits until the engine took them all. Raises: GatewayError when it refuses one."""
        if len(self._generations) == 1:
            await self._generations[0].__aenter__()
            return self
        entering = [asyncio.ensure_future(one.__aenter__()) for one in self._generations]
        try:
            await asyncio.gather(*entering)
        except BaseException:
            await _cancel(entering)
            for task, generation in zip(entering, self._generations, strict=True):
                if not task.cancelled() and task.exception() is None:
                    await generation.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for generation in self._generations:
            await generation.__aexit__()

    def divert(self, take: Callable[[int, Delta], bool]) -> None:
        """As `Generation.divert`, where there is one; several wait for each other in `deltas`."""
        if len(self._generations) == 1:
            self._generations[0].divert(partial(take, 0))

    async def deltas(self) -> AsyncIterator[tuple[int, Delta]]:
        """(index, delta), until each has had its finishing one. Raises: GatewayError."""
        if len(self._generations) == 1:
            async for delta in self._generations[0].deltas():
                yield 0, delta
            return
        queue: asyncio.Queue[tuple[int, Delta | GatewayError | None]] = asyncio.Queue(maxsize=1)
        pumps = [
            asyncio.ensure_future(_pump(index, generation, queue))
            for index, generation in enumerate(self._generations)
        ]
        try:
            num_running = len(pumps)
            while num_running:
                index, item = await queue.get()
                if isinstance(item, GatewayError):
                    raise item
                if item is None:
                    num_running -= 1
                else:
                    yield index, item
        finally:
            await _cancel(pumps)


async def _pump(
    index: int,
    generation: Generation,
    queue: "asyncio.Queue[tuple[int, Delta | GatewayError | None]]",
) -> None:
    try:
        async for delta in generation.deltas():
            await queue.put((index, delta))
    except GatewayError as err:
        await queue.put((index, err))
    else:
        await queue.put((index, None))


async def _cancel(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
