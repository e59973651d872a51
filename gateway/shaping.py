"""How much do the sizes and times of a stream's chunks tell?  Little: buckets, and a fixed beat.

A chunk that is sealed as it comes has the length of its tokens. Streams behind a sealed door are
therefore padded to buckets; with the fixed cadence, what has come is sent every 50 ms, and filler
when nothing has, whoever reads the stream and however it travels.
"""

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attestation.channel.padding import pad_each_event, pad_events
from gateway import sse
from gateway.direct import DIRECT
from gateway.doors.inner import door_of

CADENCE_S: Final = 0.05
MAX_HELD_BYTES: Final = 1 << 16  # until the next beat; the app waits for it beyond


class StreamShaper:
    """Middleware around what makes event streams; each message it sends holds whole events."""

    def __init__(self, app: ASGIApp, *, is_padded: bool, has_cadence: bool) -> None:
        self._app = app
        self._is_padded = is_padded
        self._has_cadence = has_cadence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_sealed = scope["type"] == "http" and door_of(scope) is not None
        if is_sealed or self._has_cadence:
            scope.pop(DIRECT, None)
        if scope["type"] == "http" and self._has_cadence:
            async with _Cadence(send) as cadence:
                await self._app(scope, receive, cadence.send)
        elif is_sealed and self._is_padded:
            await self._app(scope, receive, _Padding(send).send)
        else:
            await self._app(scope, receive, send)


class _Padding:
    """Pads each event of an event stream, and nothing else."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_stream = is_event_stream(message)
        elif self._is_stream and message.get("body"):
            message = {**message, "body": pad_each_event(message["body"])}
        await self._send(message)


class _Cadence:
    """Sends an event stream on a beat of its own, padded; a context manager around the app."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held = bytearray()
        self._is_over = False
        self._beat: asyncio.Task[None] | None = None
        self._has_beaten = asyncio.Event()

    async def __aenter__(self) -> "_Cadence":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.wait({self._beat})

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            if is_event_stream(message):
                self._beat = asyncio.ensure_future(self._run())
        elif self._beat is None:
            await self._send(message)
        else:
            await self._hold(self._beat, message)

    async def _hold(self, beat: "asyncio.Task[None]", message: Message) -> None:
        self._held += pad_each_event(message.get("body", b""))
        self._is_over = not message.get("more_body", False)
        while not beat.done() and (self._is_over or len(self._held) > MAX_HELD_BYTES):
            self._has_beaten.clear()
            beaten = asyncio.ensure_future(self._has_beaten.wait())
            try:
                await asyncio.wait({beaten, beat}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                beaten.cancel()
        if beat.done():
            beat.result()  # what broke the sending breaks the app

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            next_s = max(next_s + CADENCE_S, loop.time())
            await asyncio.sleep(next_s - loop.time())
            is_last, data = self._is_over, bytes(self._held) or pad_events(b"")
            self._held.clear()
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
            self._has_beaten.set()
            if is_last:
                return


def is_event_stream(start: MutableMapping[str, Any]) -> bool:
    """Whether the answer that begins with this message is one."""
    return any(
        name.lower() == b"content-type" and value.startswith(sse.MEDIA_TYPE.encode())
        for name, value in start.get("headers", ())
    )
