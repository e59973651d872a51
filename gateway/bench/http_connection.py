"""How is a server behind HTTP asked by a benchmark?  On one connection, and told in callbacks.

It shares the machine's cores with what it measures, so it does as little as it can. [RFC 9112]
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from gateway.http1 import MalformedResponse, ResponseReader
from runtime.bench.report import NotMeasurable

_TIMEOUT_S: Final = 600.0
_MAX_BODY_BYTES: Final = 1 << 26
_MAX_REFUSAL_BYTES: Final = 200
_PORTS: Final = {"http": 80, "https": 443}


class HttpTargetError(NotMeasurable):
    """The server cannot be asked, or its answer is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where it is and how it is asked."""

    url: SplitResult
    context: ssl.SSLContext | None
    api_key: str | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        return self.url.port or _PORTS[self.url.scheme]

    async def connect(self) -> "Connection":
        """Raises: HttpTargetError."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self), self.url.hostname or "", self.port, ssl=self.context
            )
        except OSError as err:
            raise HttpTargetError(f"no connection: {type(err).__name__}") from err
        return connection


def open_server(url: str, *, ca: Path | None, api_key: str | None) -> Server:
    """Raises: HttpTargetError for a URL that is not http or https."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise HttpTargetError("the URL is not http:// or https://")
    context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
    return Server(url=parts, context=context, api_key=api_key)


class Connection(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._response: ResponseReader | None = None  # None: nothing is asked
        self._take: Callable[[bytes], None]
        self._done: asyncio.Future[None]
        self._refusal = b""
        self._num_bytes = 0
        self.is_open = True  # as far as the server has said

    def close(self) -> None:
        """Without a goodbye: a server that stopped reading would be waited for."""
        self.is_open = False
        self._transport.abort()

    async def ask(self, method: str, path: str, body: bytes, take: Callable[[bytes], None]) -> None:
        """`take` gets the parts of the answer's body as they come. Raises: HttpTargetError."""
        response = self._response = ResponseReader()
        self._take, self._refusal, self._num_bytes = take, b"", 0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(self._head(method, path, body) + body)
        try:
            if not self.is_open:
                raise ConnectionError
            async with asyncio.timeout(_TIMEOUT_S):
                await self._done
        except BaseException as err:
            self.close()  # what is left of the answer would be taken for the next one
            if isinstance(err, OSError | ValueError | MalformedResponse):  # TimeoutError too
                raise HttpTargetError(f"broken answer: {type(err).__name__}") from err
            raise
        finally:
            self._response = None
        if response.head is not None and response.head.status != 200:
            text = self._refusal[:_MAX_REFUSAL_BYTES].decode(errors="replace")
            raise HttpTargetError(f"status {response.head.status}: {text}")

    async def request(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[bytes]:
        """The same, to iterate over."""
        parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        asking = asyncio.ensure_future(self.ask(method, path, body, parts.put_nowait))
        asking.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        asking.result()

    def _head(self, method: str, path: str, body: bytes) -> bytes:
        url = self._server.url
        head = [f"{method} {url.path.rstrip('/')}{path} HTTP/1.1"]
        head += [f"Host: {url.hostname}:{self._server.port}", "Accept: */*"]
        if body:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self._server.api_key:
            head += [f"Authorization: Bearer {self._server.api_key}"]
        return "\r\n".join([*head, "", ""]).encode()

    # -- for the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or self._done.done():
            return
        try:
            part = b"".join(response.feed(data))
            self._num_bytes += len(part)
            if self._num_bytes > _MAX_BODY_BYTES:
                raise ValueError("the body is too large")
            if response.head is not None and response.head.status != 200:
                self._refusal += part
            elif part:
                self._take(part)
        except Exception as err:  # whoever asked is told
            self._done.set_exception(err)
            return
        if response.is_complete:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        response = self._response
        if response is None or self._done.done():
            return
        try:
            if exc is not None:
                raise exc
            response.finish()
        except Exception as err:  # as above
            self._done.set_exception(err)
        else:
            self._done.set_result(None)
