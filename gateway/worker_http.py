"""How are bytes asked of a worker?  HTTP/1.1 over kept connections, one request at a time on each.

A client of our own: each event of a stream passes here, and a general one took a quarter of the
gateway. [docs/decisions/0027]
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final
from urllib.parse import urlsplit

from gateway.http1 import ResponseHead
from gateway.worker_connection import WorkerConnection, WorkerGone

UNIX_SCHEME: Final = "unix:"
MAX_IDLE: Final = 64
_CONNECT_S: Final = 5.0


class WorkerResponse:
    """A response whose head has arrived; its content is read once, as it comes."""

    def __init__(self, connection: WorkerConnection, head: ResponseHead) -> None:
        self._connection = connection
        self.status = head.status
        self.fields = head.fields

    async def read(self) -> bytes | None:
        """What has come since, at least one byte; None at the end. Raises: WorkerGone."""
        return await self._connection.read()

    def divert(self, take: Callable[[bytes], None], *, is_ready: Callable[[], bool]) -> None:
        """From now on `take` gets what comes while `read` waits, where `is_ready`; `read` raises
        what it raises.
        """
        self._connection.divert(take, is_ready)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Raises: WorkerGone."""
        while (piece := await self.read()) is not None:
            yield piece


class WorkerHttp:
    """Connections to one address: `unix:/path` or `http://host:port`."""

    def __init__(self, address: str) -> None:
        self._path = self._host = ""
        self._port, host = 80, "worker"
        if address.startswith(UNIX_SCHEME):
            self._path = address.removeprefix(UNIX_SCHEME)
        else:
            url = urlsplit(address)
            self._host, self._port, host = url.hostname or "", url.port or 80, url.netloc
        self._fields = f"Host: {host}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
        self._idle: list[WorkerConnection] = []
        self._open: set[WorkerConnection] = set()
        self.is_closed = False

    async def get(self, target: str) -> WorkerResponse:
        """Raises: WorkerGone."""
        return await self._ask(f"GET {target} HTTP/1.1\r\n{self._fields}\r\n", b"")

    async def post(
        self, target: str, body: bytes | AsyncIterator[bytes], *, media_type: str
    ) -> WorkerResponse:
        """Raises: WorkerGone."""
        framing = (
            f"Content-Length: {len(body)}"
            if isinstance(body, bytes)
            else "Transfer-Encoding: chunked"
        )
        head = f"POST {target} HTTP/1.1\r\n{self._fields}Content-Type: {media_type}\r\n{framing}"
        return await self._ask(f"{head}\r\n\r\n", body)

    def release(self, response: WorkerResponse) -> None:
        """The connection is kept where the response was read to its end, else it is cut."""
        connection = response._connection  # noqa: SLF001 - of this module
        if self.is_closed or len(self._idle) >= MAX_IDLE or not connection.rest():
            connection.abort()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Cuts every connection, also those in use; idempotent."""
        self.is_closed = True
        self._idle.clear()
        for connection in tuple(self._open):
            connection.abort()

    async def _ask(self, head: str, body: bytes | AsyncIterator[bytes]) -> WorkerResponse:
        connection = await self._connection()
        try:
            await connection.send(head.encode("latin-1"), body)
            return WorkerResponse(connection, await connection.head())
        except BaseException:
            connection.abort()
            raise

    async def _connection(self) -> WorkerConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.wake():
                return connection
        if self.is_closed:
            raise WorkerGone("closed")
        connection, loop = WorkerConnection(self._forget), asyncio.get_running_loop()
        self._open.add(connection)
        try:
            async with asyncio.timeout(_CONNECT_S):
                if self._path:
                    await loop.create_unix_connection(lambda: connection, self._path)
                else:
                    await loop.create_connection(lambda: connection, self._host, self._port)
        except BaseException as err:
            connection.abort()  # uvloop does not tell it
            if isinstance(err, OSError):  # TimeoutError is one
                raise WorkerGone(type(err).__name__) from None
            raise
        return connection

    def _forget(self, connection: WorkerConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
