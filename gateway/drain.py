"""How does a process stop without cutting answers short?

``begin`` is called when the process is told to stop: new requests are refused, running streams get
``drain_s`` to finish, and those that do not are interrupted with an error event of their own.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Drain:
    """One per process; used on the event loop only."""

    def __init__(self, *, drain_s: float) -> None:
        self._drain_s = drain_s
        self._interrupts: set[Callable[[], None]] = set()
        self.has_begun = False

    def begin(self) -> None:
        """Idempotent; must run on the event loop."""
        if self.has_begun:
            return
        self.has_begun = True
        asyncio.get_running_loop().call_later(self._drain_s, self._interrupt_all)

    def register(self, interrupt: Callable[[], None]) -> Callable[[], None]:
        """`interrupt` is called when the time is up; call the result when the stream ended."""
        self._interrupts.add(interrupt)
        return lambda: self._interrupts.discard(interrupt)

    @property
    def num_open(self) -> int:
        return len(self._interrupts)

    def _interrupt_all(self) -> None:
        for interrupt in tuple(self._interrupts):
            interrupt()


@contextlib.contextmanager
def drain_on_signals(begin: Callable[[], None]) -> Iterator[None]:
    """Calls `begin` on the loop when the process is told to stop, then the server's own handler.

    A server tells its app that it stops only after the last response, which is too late to end
    one. Outside the main thread, where no signal arrives, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin)
        handler = previous[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in _SIGNALS:
        if callable(previous[number]):
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            if callable(handler):
                signal.signal(number, handler)
