"""Is a worker that sends nothing stuck, or is it just not our turn?

While an exchange waits for its worker, each `silence_s` without a word ends in a question. One that
is found alive may stay silent for as long again; the time that the client takes does not count.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from gateway.problems import GatewayError


def unanswered() -> GatewayError:
    return GatewayError("request_timeout", "The worker does not answer.")


class SilenceWatch:
    """Watches one exchange with one worker, from its making until `close`.

    `is_waiting` tells whether it is the worker that is waited for, `is_alive` whether it has shown
    life within the silence that it is given, and `on_stuck` is called once, if it has not.
    """

    def __init__(
        self,
        *,
        silence_s: float,
        is_waiting: Callable[[], bool],
        is_alive: Callable[[timedelta], Awaitable[bool]],
        on_stuck: Callable[[], None],
    ) -> None:
        self._silence_s = silence_s
        self._is_waiting = is_waiting
        self._is_alive = is_alive
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        self._silent_since = self._loop.time()
        self._look: asyncio.Task[None] | None = None
        self._timer = self._at_the_end()

    def heard(self) -> None:
        """The worker sent something, or is only now waited for."""
        self._silent_since = self._loop.time()

    def close(self) -> None:
        """Nothing is asked or called any more."""
        self._timer.cancel()
        if self._look is not None:
            self._look.cancel()

    def _at_the_end(self) -> asyncio.TimerHandle:
        return self._loop.call_at(self._silent_since + self._silence_s, self._on_silence)

    def _on_silence(self) -> None:
        if not self._is_waiting():
            self.heard()
        if self._loop.time() < self._silent_since + self._silence_s:
            self._timer = self._at_the_end()
        else:
            self._look = self._loop.create_task(self._look_at_it())

    async def _look_at_it(self) -> None:
        since = self._silent_since
        is_alive = await self._is_alive(timedelta(seconds=self._loop.time() - since))
        if not is_alive and since == self._silent_since:  # nothing came meanwhile
            self._on_stuck()
            return
        self.heard()
        self._timer = self._at_the_end()
