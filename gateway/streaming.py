"""How does a streamed body end together with its reader?

The source iterator is always closed before the response returns, whether the body ended, the
client went away or the server stops; closing it is what cancels the work behind it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.direct import DirectSlot
from gateway.problems import GatewayError

T = TypeVar("T")
SLOW_READER: Final = "starshade.slow_reader"
"""Set in a request's ASGI state when its connection was cut because nobody read the answer."""


class StreamedBody(Response):
    """Sends each item as it comes, without buffering, and stops when the client disconnects.

    `on_close` runs in every case, also when the source was never started; closing a generator
    that never ran does not run its `finally`. `on_slow_reader` runs before it when the server cut
    the connection because nobody read. A source with a slot learns of a direct way once its answer
    has begun.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        *,
        on_close: Callable[[], Awaitable[None]],
        media_type: str,
        on_slow_reader: Callable[[], None] = lambda: None,
        slot: DirectSlot | None = None,
    ) -> None:
        # Response.__init__ would set a content-length for an empty body
        self.source = source
        self.on_close = on_close
        self.on_slow_reader = on_slow_reader
        self.slot = slot
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.ensure_future(self._send_all(scope, send))
        watcher = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sender, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await _cancelled(watcher)
                await _cancelled(sender)
            finally:
                if scope.get("state", {}).get(SLOW_READER):
                    self.on_slow_reader()
                try:
                    await self.source.aclose()
                finally:
                    await self.on_close()
        if sender.done() and not sender.cancelled():
            sender.result()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        if self.slot is not None:
            self.slot.fill(scope)
        async for chunk in self.source:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone away; call it after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work`, but cancels it when the client goes away.

    Raises: GatewayError `client_disconnected`, which nobody is left to read.
    """
    worker = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        raise GatewayError("client_disconnected", "The client went away.")
    finally:
        await _cancelled(watcher)
        await _cancelled(worker)


async def _cancelled(task: "asyncio.Future[Any]") -> None:
    """Cancels and waits; whatever it ended with stays in the task."""
    task.cancel()
    await asyncio.wait({task})
