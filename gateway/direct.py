"""How does an event reach a client without passing a coroutine of every layer?

Once an answer has begun and its reader keeps up, a piece of it is written in the callback in which
it came. [docs/decisions/0036] Whatever is not usual goes the way of every other answer: the first
and the last words, errors, and all that a client does not take at once.

A layer that changes what clients see has to be on both ways. It takes `DIRECT` out of the scope,
or puts a `Direct` there that does to a piece what its `send` does to a message.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import Scope

DIRECT: Final = "starshade.direct"  # in an ASGI scope: the Direct of its answer


@dataclass(frozen=True, slots=True)
class Direct:
    """Where the pieces of one answer may go at once; on the event loop only.

    `is_ready` tells whether one may now: the answer runs and its client has room. It is asked
    before each `write`, and only where everything that came before has been passed on.
    """

    is_ready: Callable[[], bool]
    write: Callable[[bytes], None]

    def through(self, change: Callable[[bytes], bytes]) -> "Direct":
        """The same behind a layer that changes what passes it."""
        write = self.write
        return Direct(self.is_ready, lambda data: write(change(data)))


@dataclass(slots=True)
class DirectSlot:
    """What a source of pieces may look into, once it is known where its answer goes."""

    direct: Direct | None = None

    def fill(self, scope: Scope) -> None:
        self.direct = scope.get(DIRECT)

    def fill_through(self, outer: "DirectSlot", change: Callable[[bytes], bytes]) -> None:
        """From the slot of the layer above, which changes what passes; once it is filled."""
        if self.direct is None and outer.direct is not None:
            self.direct = outer.direct.through(change)


def writer_at_once(transport: asyncio.WriteTransport) -> Callable[[bytes], None]:
    """What writes to the transport's socket before it returns, where the socket has room.

    uvloop's own `write` waits until all callbacks of its turn have run: the first event of a step
    would wait for its last.
    """
    socket = transport.get_extra_info("socket")
    file = -1 if socket is None else socket.fileno()
    if file < 0:
        return transport.write
    get_num_waiting, is_closing, write = (
        transport.get_write_buffer_size,
        transport.is_closing,
        transport.write,
    )

    def write_at_once(data: bytes) -> None:
        if not get_num_waiting() and not is_closing():
            try:
                num_written = os.write(file, data)
            except OSError:  # no room; or what `write` will find too
                num_written = 0
            if num_written == len(data):
                return
            data = data[num_written:]
        write(data)

    return write_at_once
