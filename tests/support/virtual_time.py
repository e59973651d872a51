"""How does a test wait for a time that a busy machine cannot stretch?  It does not wait at all.

The loop's clock stands while anything runs, and jumps to the next timer when nothing does. For code
without threads and sockets.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__()
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None) -> Any:
            if timeout is None:  # without a timer it is another thread that is waited for
                return select(None)
            ready = select(0)
            if not ready:
                self._now_s += timeout
            return ready

        selector.select = jump

    def time(self) -> float:
        return self._now_s


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
