"""How is a process told to read its files anew?  By SIGHUP, as daemons are."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator


@contextlib.contextmanager
def reload_on_hangup(reload: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Runs `reload` on the loop at each signal, one after the other.

    Outside the main thread, where no signal arrives, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    async def follow() -> None:
        while True:
            await asked.wait()
            asked.clear()
            await reload()

    follower = asyncio.ensure_future(follow())
    loop.add_signal_handler(signal.SIGHUP, asked.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        follower.cancel()
