"""How long may a client hold a connection without asking or reading, and how many may do so?

uvicorn's own protocol waits for ever for the first request, for the rest of one that has begun, and
for a client to take its answer; here a request's headers are whole in time, and an answer is read
in time, or the connection is cut. Beyond a number of connections
the one that has been idle longest gives way, so that a flood of them never locks others out. What
is no HTTP is refused in the words of every other refusal.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gateway.direct import DIRECT, Direct, writer_at_once
from gateway.malformed import OPENING_BYTES, malformed_answer
from gateway.streaming import SLOW_READER
from gateway.tls_connection import TlsTransport

HEADER_DEADLINE_S: Final = 10.0  # from the connection, or the first byte, to the last header
WAITING_BYTES: Final = 64 * 1024  # of an answer, until more of it is held back
READER_STALL_S: Final = 30.0  # for a client to take three quarters of them
KEEP_ALIVE_S: Final = 15  # between two requests; pools of clients give up after 5 s
MAX_CONNECTIONS: Final = 1024  # beyond these, idle ones give way; requests have their own bound


class BoundedProtocol(H11Protocol):
    """One connection of a client; on the event loop only."""

    header_deadline_s = HEADER_DEADLINE_S
    reader_stall_s = READER_STALL_S
    max_connections = MAX_CONNECTIONS
    conn: "_StreamingConnection"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = self._directly(self.app)
        self.conn = _StreamingConnection(h11.SERVER)
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._write_at_once: Callable[[bytes], None]
        self._opening = b""  # the first bytes of the latest request
        self.idle_since_s = time.monotonic()  # uvloop's clock counts milliseconds

    @property
    def is_idle(self) -> bool:
        """No request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if isinstance(transport, TlsTransport):
            self._write_at_once = transport.write_at_once
        else:
            self._write_at_once = writer_at_once(transport)
        transport.set_write_buffer_limits(high=WAITING_BYTES)
        self._watch()
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._end_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._opening = self.conn.trailing_data[0][:OPENING_BYTES]
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's own is plain text, and fails where an answer has begun."""
        answer = malformed_answer(self.conn, self._opening, self.server_state.default_headers)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the app that waits for the body: nobody hears it any more
            cycle.message_event.set()
        if answer is None:
            self.cut()
            return
        self.transport.write(answer)
        self.transport.close()

    def on_response_complete(self) -> None:
        self.idle_since_s = time.monotonic()
        super().on_response_complete()  # its timer bounds the silence until the next request

    def pause_writing(self) -> None:
        """More than WAITING_BYTES wait for the client."""
        super().pause_writing()
        self._begin_stall()

    def resume_writing(self) -> None:
        """Less than a quarter of them waits."""
        super().resume_writing()
        self._end_stall()
        if self.transport.is_closing():
            self._begin_stall()

    def eof_received(self) -> None:
        """The transport closes, and would wait for ever for the client to take what it has."""
        super().eof_received()
        self._begin_stall()

    def cut(self) -> None:
        self.transport.abort()

    def _directly(self, app: ASGIApp) -> ASGIApp:
        """`app`, whose answers' events need not pass uvicorn's coroutines."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, DIRECT: self._direct()}, receive, send)

        return serve

    def _direct(self) -> Direct:
        """For the answer to the request that is read now."""
        cycle, conn, flow, write = self.cycle, self.conn, self.flow, self._write_at_once

        def is_ready() -> bool:
            return (
                conn.is_in_chunks
                and cycle.response_started
                and not (cycle.response_complete or cycle.disconnected or flow.write_paused)
            )

        return Direct(is_ready, lambda data: write(framed(data)))

    def _watch(self) -> None:
        """The deadline runs from the first idle byte, and no further byte moves it."""
        if not self.is_idle:
            self._unwatch()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._deadline = self.loop.call_later(self.header_deadline_s, self._on_deadline)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.is_idle:
            self.cut()

    def _on_stall(self) -> None:
        self._stall = None
        if self.scope is not None:
            self.scope["state"][SLOW_READER] = True
        self.cut()

    def _begin_stall(self) -> None:
        if self._stall is None:
            self._stall = self.loop.call_later(self.reader_stall_s, self._on_stall)

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _make_room(self) -> None:
        """Cuts the connection that has been idle longest; it may be this one."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, BoundedProtocol)
            and other.is_idle
            and not other.transport.is_closing()
        ]
        min(idle, key=lambda other: other.idle_since_s).cut()


class _StreamingConnection(h11.Connection):
    """Frames the chunks of an answer itself; h11 has the say in all else."""

    _is_chunked = False

    @property
    def is_in_chunks(self) -> bool:
        """An answer's body is being sent, in chunks."""
        return self._is_chunked and self.our_state is h11.SEND_BODY

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        if type(event) is h11.Data and self.is_in_chunks:
            return framed(event.data)
        sent = super().send(event)
        if type(event) is h11.Response:
            self._is_chunked = b"\r\ntransfer-encoding: chunked\r\n" in (sent or b"").lower()
        return sent


def framed(data: bytes) -> bytes:
    """One chunk; none of no bytes, which would end the body.  [RFC 9112 sec. 7.1]"""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class PatientProtocol(BoundedProtocol):
    """For the gateway as a client: it reads as slowly as its own clients, until it cuts them."""

    reader_stall_s = 2 * READER_STALL_S
