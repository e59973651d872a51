"""How does a server with bounded connections start, and how does it stop?

uvicorn's own waits at its end for clients that keep a connection and do not read from it.
"""

import asyncio
import functools
import gc
import socket
import sys
from collections.abc import Callable
from typing import Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.flow_control import CLOSE_HEADER

from gateway.connections import BoundedProtocol
from gateway.tls_connection import READ_BYTES, Handshakes, TlsConnection

HANDSHAKE_DEADLINE_S: Final = 10.0  # of TLS
FAREWELL_DEADLINE_S: Final = 5.0  # for a client to answer the end of a TLS connection
LAST_REQUESTS_S: Final = 5  # for those that came during a drain, once the others are done
_DRAIN_POLL_S: Final = 0.05
_FAREWELL_S: Final = 1.0  # the same when the server stops and the connection carries nothing


class BoundedServer(uvicorn.Server):
    """Serves its one listener with BoundedProtocol, and bounds what TLS waits for.

    Stops without waiting for clients that keep a connection but do not read from it: a TLS
    connection counts as open until its client answers the goodbye, which an idle pool of
    connections never does; asyncio would wait 30 s for each.
    """

    protocol: type[BoundedProtocol] = BoundedProtocol
    handshake_deadline_s = HANDSHAKE_DEADLINE_S
    stays_open = False  # for an app that refuses what comes while running requests finish
    owns_process = False  # what is there at the start stays: looking through it took 70 ms

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's own, but with the TLS of `gateway.tls_connection`."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        loop, config = asyncio.get_running_loop(), self.config
        self.servers = [
            await loop.create_server(self._connection(), sock=listener, backlog=config.backlog)
            for listener in sockets or ()
        ]
        if self.owns_process:
            gc.collect()
            gc.freeze()
        self.started = True

    def _connection(self) -> Callable[[], asyncio.BaseProtocol]:
        """What makes the protocol of a connection that was accepted."""
        config = self.config
        bounded = functools.partial(
            self.protocol,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        if config.ssl is None:
            return bounded
        context, buffer = config.ssl, bytearray(READ_BYTES)
        handshakes = Handshakes(self.protocol.max_connections)
        return lambda: TlsConnection(
            bounded(),
            context,
            buffer=buffer,
            handshakes=handshakes,
            handshake_s=self.handshake_deadline_s,
            farewell_s=FAREWELL_DEADLINE_S,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(_FAREWELL_S, self._drop_closing)
        if self.stays_open:
            await self._finish_running()
        await super().shutdown(sockets)

    async def _finish_running(self) -> None:
        """Until the requests that run are done or their time is up, the app tells newcomers that
        it stops, and its supervisor and balancers that it lives; a closed port tells them nothing.

        Nobody who comes meanwhile prolongs it.
        """
        loop, state = asyncio.get_running_loop(), self.server_state
        until_s = loop.time() + (self.config.timeout_graceful_shutdown or 0)
        state.default_headers = [*state.default_headers, CLOSE_HEADER]
        running = {
            connection
            for connection in state.connections
            if isinstance(connection, BoundedProtocol) and not connection.is_idle
        }
        for connection in tuple(state.connections):
            connection.shutdown()
        while running & state.connections and not self.force_exit and loop.time() < until_s:
            await asyncio.sleep(_DRAIN_POLL_S)
        left_s = min(int(until_s - loop.time()), LAST_REQUESTS_S)
        self.config.timeout_graceful_shutdown = max(left_s, 1)

    def _drop_closing(self) -> None:
        for connection in tuple(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport and transport.is_closing() and not transport.get_write_buffer_size():
                transport.abort()
        if self.server_state.connections:  # streams that still run end later
            asyncio.get_running_loop().call_later(_FAREWELL_S, self._drop_closing)
