"""How is one request after another sent on a connection to a worker, and its answer taken?

On the event loop only. A connection that was left in the middle, or that said more than it was
asked, is never used again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from gateway.http1 import MalformedResponse, ResponseHead, ResponseReader

MAX_HELD_BYTES: Final = 1 << 16  # that came and were not read; then the worker is let wait
_WRITE_S: Final = 10.0  # for a worker to take a piece of a request
_KEEP_ALIVE_S: Final = 3.0  # below a server's usual 5 s, so that it is this side that closes


class WorkerGone(Exception):
    """No connection, or one that broke or brought no HTTP."""


class WorkerConnection(asyncio.Protocol):
    """One connection; on the event loop only."""

    def __init__(self, on_lost: "Callable[[WorkerConnection], None]") -> None:
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None  # None: nothing is asked
        self._pieces: list[bytes] = []
        self._num_held = 0
        self._is_held_up = False  # the worker waits for us
        self._is_early = False  # the answer came before the whole request had been sent
        self._is_lost = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], None] | None = None
        self._is_ready: Callable[[], bool] = lambda: False
        self._fault: Exception | None = None  # of who took
        self._expiry: asyncio.TimerHandle | None = None

    # -- for whoever asks --------------------------------------------------------------------

    async def send(self, head: bytes, body: bytes | AsyncIterator[bytes]) -> None:
        """One whole request. Raises: WorkerGone.

        Where the worker hangs up meanwhile, it may have said why: `head` tells.
        """
        reader = self._reader = ResponseReader()
        if isinstance(body, bytes):
            await self._write(head + body)
        else:
            await self._write(head)
            async for data in body:
                if self._is_lost:
                    return
                if data:
                    await self._write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._write(b"0\r\n\r\n")
        self._is_early = reader.head is not None

    async def head(self) -> ResponseHead:
        """Raises: WorkerGone."""
        reader = self._reader
        while reader is None or reader.head is None:
            await self._more()
        return reader.head

    async def read(self) -> bytes | None:
        """Raises: WorkerGone."""
        while not self._pieces:
            if self._fault is not None:
                raise self._fault
            if self._reader is not None and self._reader.is_complete:
                return None
            await self._more()
        pieces, self._pieces, self._num_held = self._pieces, [], 0
        if self._is_held_up and self._transport is not None:
            self._is_held_up = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def divert(self, take: Callable[[bytes], None], is_ready: Callable[[], bool]) -> None:
        self._take, self._is_ready = take, is_ready

    def rest(self) -> bool:
        """Between two requests; False where there cannot be another."""
        reader, self._reader, self._take = self._reader, None, None
        is_read = reader is not None and reader.may_follow and not self._pieces
        is_read = is_read and self._fault is None
        if self._is_lost or self._is_early or not is_read:
            return False
        self._expiry = self._loop.call_later(_KEEP_ALIVE_S, self.abort)
        return True

    def wake(self) -> bool:
        """Whether it may be asked again."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        return not self._is_lost

    def abort(self) -> None:
        """What has come is not read any more."""
        self._pieces, self._reader, self._take = [], None, None
        self._lose()

    # -- for the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if self._is_lost:  # meanwhile
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_lost:
            return
        if self._reader is None:  # nobody asked
            self.abort()
            return
        try:
            pieces = self._reader.feed(data)
        except MalformedResponse:
            self._lose()
            return
        if self._take is not None and self._is_awaited() and self._is_ready():
            self._hand_over(pieces, self._take)
            return
        self._pieces += pieces
        self._num_held += sum(map(len, pieces))
        if self._num_held > MAX_HELD_BYTES and not self._is_held_up and self._transport:
            self._is_held_up = True
            self._transport.pause_reading()
        self._notify()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reader is not None and exc is None and not self._is_lost:
            with suppress(MalformedResponse):  # whoever reads finds that the connection is lost
                self._reader.finish()
        self._lose()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _lose(self) -> None:
        self._is_lost = True
        self.wake()
        self._can_write.set()
        self._notify()
        self._on_lost(self)
        if self._transport is not None:
            self._transport.abort()

    def _is_awaited(self) -> bool:
        """Whoever reads has passed on all that came before."""
        return self._waiter is not None and not self._waiter.done()

    def _hand_over(self, pieces: list[bytes], take: Callable[[bytes], None]) -> None:
        try:
            for piece in pieces:
                take(piece)
        except Exception as err:  # whoever reads is told
            self._fault = err
        if self._fault is not None or (self._reader is not None and self._reader.is_complete):
            self._notify()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        """Until something happens. Raises: WorkerGone when nothing can."""
        if self._is_lost:
            raise WorkerGone("the connection is lost")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_lost:
            self._transport.write(data)
        if not self._can_write.is_set():
            try:
                async with asyncio.timeout(_WRITE_S):
                    await self._can_write.wait()
            except TimeoutError:
                raise WorkerGone("the worker does not take the request") from None
