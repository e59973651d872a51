"""How does a streamed body end together with its reader?

The source iterator is always closed before the response returns, whether the body ended, the
client went away or the server stops; closing it is what cancels the work behind it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class StreamedBody(Response):
    """Sends each item as it comes, without buffering, and stops when the client disconnects."""

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        *,
        status_code: int = 200,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # Response.__init__ would set a content-length for an empty body
        self.source = source
        self.status_code = status_code
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-store", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.ensure_future(self._send_all(send))
        watcher = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sender, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
            if not sender.done():
                sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sender

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self.source):
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for chunk in self.source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone away; call it after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
