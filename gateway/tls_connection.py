"""How does a connection speak TLS?  Between a transport and a protocol that need not know of it.

asyncio's own does the same for clients and servers of any kind, at more cost an event, and each of
its connections has a buffer for reading; here all connections of a server share one.
[docs/decisions/0027] The protocol is OpenSSL's: this moves bytes, and bounds what is waited for.
"""

import asyncio
import ssl
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from gateway.direct import writer_at_once

READ_BYTES: Final = 64 * 1024  # at once; four records
_TAKEN_BYTES: Final = 16 * 1024  # of our last words, by a client that is given more time for them
_AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLSyscallError)


class _State(Enum):
    HANDSHAKE = "handshake"
    OPEN = "open"
    FAREWELL = "farewell"  # ours was said, and the client's is waited for


class TlsConnection(asyncio.BufferedProtocol):
    """The server's side of one connection; on the event loop only.

    `protocol` hears of the connection when the handshake is done. What it writes is sealed at once.
    After it closes the connection, the client's own goodbye is waited for, at most `farewell_s` and
    as long again while it takes what it was told: a socket that is closed while the client still
    writes would take our last words with it.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        *,
        buffer: bytearray,
        handshakes: "Handshakes",
        handshake_s: float,
        farewell_s: float,
    ) -> None:
        """`buffer`, which holds nothing between two calls, and `handshakes` are the server's."""
        self._protocol = protocol
        self._buffer = memoryview(buffer)
        self._handshakes = handshakes
        self._handshake_s = handshake_s
        self._farewell_s = farewell_s
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.context = context
        self._state = _State.HANDSHAKE
        self._is_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._num_waiting = 0  # bytes that the client had not taken when the timer was set
        self.transport: asyncio.Transport
        self._send: Callable[[bytes], None]

    # -- for the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._send = writer_at_once(transport)
        self._handshakes.begin(self)
        self._limit(self._handshake_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        self._handshakes.end(self)
        if self._state is not _State.HANDSHAKE:
            self._protocol.connection_lost(exc)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._buffer[:nbytes])
        if self._state is _State.HANDSHAKE:
            self._shake_hands()
        if self._state is _State.OPEN:
            self._read()
        elif self._state is _State.FAREWELL:
            self._await_farewell()

    def eof_received(self) -> None:
        """Without a goodbye: there is nobody to wait for."""
        if self._state is _State.OPEN:
            self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._state is not _State.HANDSHAKE:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._state is not _State.HANDSHAKE:
            self._protocol.resume_writing()

    # -- for the protocol's transport --------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self._state is _State.FAREWELL or self.transport.is_closing()

    def write(self, data: bytes) -> None:
        if not data or self.is_closing:
            return
        self._seal(data)
        self.transport.write(self._outgoing.read())

    def write_at_once(self, data: bytes) -> None:
        """The same, without waiting for the end of the loop's turn."""
        if not data or self.is_closing:
            return
        self._seal(data)
        self._send(self._outgoing.read())

    def pause_reading(self) -> None:
        """What has come is held back: a buffer of it at most."""
        self._is_paused = True
        if not self.is_closing:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self.is_closing:
            self.transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._read)

    def close(self) -> None:
        if self.is_closing:
            return
        self._state = _State.FAREWELL
        self._limit(self._farewell_s)
        try:
            self.ssl.unwrap()
        except ssl.SSLError:  # the client's goodbye is not there yet, or is none
            self._flush()
            self.transport.resume_reading()
            self._await_farewell()
        else:
            self._flush()
            self.transport.close()

    # ----------------------------------------------------------------------------------------

    def _seal(self, data: bytes) -> None:
        num_bytes = self.ssl.write(data)
        while num_bytes < len(data):
            num_bytes += self.ssl.write(memoryview(data)[num_bytes:])

    def _shake_hands(self) -> None:
        try:
            self.ssl.do_handshake()
        except _AGAIN:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError):
            self._flush()  # the alert says why
            self.transport.close()
            return
        self._unlimit()
        self._handshakes.end(self)
        self._flush()
        self._state = _State.OPEN
        self._protocol.connection_made(TlsTransport(self))

    def _read(self) -> None:
        is_over = False
        while not (self._is_paused or self.is_closing):
            try:
                piece = self.ssl.read(READ_BYTES)
            except _AGAIN:
                break
            except ssl.SSLError:
                self._flush()
                self.transport.abort()
                return
            if not piece:
                is_over = True
                break
            self._flush()
            self._protocol.data_received(piece)
        self._flush()
        if is_over:
            self._protocol.eof_received()
            self.close()

    def _await_farewell(self) -> None:
        """What the client still says is read, for it to take our last words, and dropped."""
        try:
            while self.ssl.read(READ_BYTES):
                pass
        except _AGAIN:
            return
        except ssl.SSLError:
            self.transport.abort()
        else:
            self.transport.close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.transport.write(self._outgoing.read())

    def _limit(self, time_s: float) -> None:
        self._unlimit()
        self._num_waiting = self.transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(time_s, self._on_time)

    def _on_time(self) -> None:
        num_taken = self._num_waiting - self.transport.get_write_buffer_size()
        if self._state is _State.FAREWELL and num_taken >= min(self._num_waiting, _TAKEN_BYTES) > 0:
            self._limit(self._farewell_s)
        else:
            self.transport.abort()

    def _unlimit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Handshakes:
    """Those of a server that are not done. Beyond `max_open` the oldest gives way."""

    def __init__(self, max_open: int) -> None:
        self._max_open = max_open
        self._open: dict[TlsConnection, None] = {}  # in order

    def begin(self, connection: TlsConnection) -> None:
        self._open[connection] = None
        if len(self._open) > self._max_open:
            oldest = next(iter(self._open))
            self.end(oldest)
            oldest.transport.abort()

    def end(self, connection: TlsConnection) -> None:
        """Idempotent."""
        self._open.pop(connection, None)


class TlsTransport(asyncio.Transport):
    """What the protocol of a TlsConnection writes to."""

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        self._connection = connection
        self._below = connection.transport
        self.write_at_once = connection.write_at_once

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "ssl_object":
                return self._connection.ssl
            case "sslcontext":
                return self._connection.context
            case "peercert":
                return self._connection.ssl.getpeercert()
            case _:
                return self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._connection.is_closing

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self._connection.write(data)

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._below.abort()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def pause_reading(self) -> None:
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        self._connection.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()
