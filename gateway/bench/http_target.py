"""How does a server behind HTTP answer the cases of `runtime.bench.serving`?

A plain HTTP/1.1 client on asyncio streams: it shares the machine's cores with what it measures, so
it does as little as it can. Connections are opened before the clock starts and kept over a run.
[RFC 9112]
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import uvloop

from gateway.http1 import MalformedResponse, ResponseReader
from gateway.sse import DONE_DATA, EventSplitter, EventTooLargeError, event_data
from runtime.bench.load import Job, LoadRun, Record
from runtime.bench.report import NotMeasurable

_TIMEOUT_S: Final = 600.0
_READ_BYTES: Final = 1 << 16
_MAX_BODY_BYTES: Final = 1 << 26
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
        try:
            reader, writer = await asyncio.open_connection(
                self.url.hostname, self.port, ssl=self.context
            )
        except OSError as err:
            raise HttpTargetError(f"no connection: {type(err).__name__}") from err
        return Connection(self, reader, writer)


def open_server(url: str, *, ca: Path | None, api_key: str | None) -> Server:
    """Raises: HttpTargetError for a URL that is not http or https."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise HttpTargetError("the URL is not http:// or https://")
    context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
    return Server(url=parts, context=context, api_key=api_key)


class Connection:
    """One kept connection; one request at a time."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        """Whether the server, as far as it has said, still listens."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    def close(self) -> None:
        """Without a goodbye: a server that stopped reading would be waited for."""
        self._writer.transport.abort()

    async def request(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[bytes]:
        """The parts of the answer's body as they come. Raises: HttpTargetError."""
        url = self._server.url
        head = [f"{method} {url.path.rstrip('/')}{path} HTTP/1.1"]
        head += [f"Host: {url.hostname}:{self._server.port}", "Accept: */*"]
        if body:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self._server.api_key:
            head += [f"Authorization: Bearer {self._server.api_key}"]
        self._writer.write("\r\n".join([*head, "", ""]).encode() + body)
        response = ResponseReader()
        refusal, num_bytes = b"", 0
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._writer.drain()
                while not response.is_complete:
                    if data := await self._reader.read(_READ_BYTES):
                        part = b"".join(response.feed(data))
                    else:
                        part = b""
                        response.finish()
                    num_bytes = _bounded(num_bytes + len(part))
                    if response.head is not None and response.head.status != 200:
                        refusal += part
                    elif part:
                        yield part
        except (OSError, TimeoutError, ValueError, MalformedResponse) as err:
            raise HttpTargetError(f"broken answer: {type(err).__name__}") from err
        if response.head is not None and response.head.status != 200:
            text = refusal[:200].decode(errors="replace")
            raise HttpTargetError(f"status {response.head.status}: {text}")


class HttpTarget:
    """Streams of chat or plain completions, greedy, blind to EOS."""

    def __init__(
        self,
        server: Server,
        *,
        model: str,
        decode: Callable[[Sequence[int]], str],
        as_chat: bool,
        name: str = "url",
    ) -> None:
        self.name = name
        self._server = server
        self._model = model
        self._decode = decode
        self._as_chat = as_chat

    def run(self, jobs: Sequence[Job], *, concurrency: int) -> LoadRun:
        return uvloop.run(_Loop(self, jobs).run(concurrency))

    async def connect(self) -> Connection:
        return await self._server.connect()

    def body(self, job: Job) -> tuple[str, bytes]:
        """Path and JSON of one request."""
        text = self._decode(job.prompt_token_ids)
        value: dict[str, Any] = {
            "model": self._model,
            "max_tokens": job.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        if self._as_chat:
            value["messages"] = [{"role": "user", "content": text}]
            return "/chat/completions", json.dumps(value).encode()
        value["prompt"] = text
        return "/completions", json.dumps(value).encode()


def first_model(server: Server) -> str:
    """The first model that the server lists. Raises: HttpTargetError."""

    async def ask() -> bytes:
        connection = await server.connect()
        try:
            return b"".join([part async for part in connection.request("GET", "/models")])
        finally:
            connection.close()

    try:
        return str(json.loads(asyncio.run(ask()))["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as err:
        raise HttpTargetError("the server lists no model") from err


class _Loop:
    """One closed loop: jobs in order, each stream takes the next one."""

    def __init__(self, target: HttpTarget, jobs: Sequence[Job]) -> None:
        self._target = target
        self._bodies = [target.body(job) for job in jobs]  # not inside the measured time
        self._jobs = jobs
        self._next = 0
        self._records: dict[int, Record] = {}
        self._num_tokens = 0
        self._progress = asyncio.Event()

    async def run(self, concurrency: int) -> LoadRun:
        num_streams = min(concurrency, len(self._jobs))
        connections: list[Connection] = []
        try:
            for _ in range(num_streams):
                connections.append(await self._target.connect())
            started_s = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for connection in connections:
                    group.create_task(self._stream(connection))
            wall_s = time.perf_counter() - started_s
        except* HttpTargetError as errors:
            raise errors.exceptions[0] from None
        finally:
            for connection in connections:
                connection.close()
        records = [self._records[number] for number in range(len(self._jobs))]
        return LoadRun(records=records, wall_s=wall_s)

    async def _stream(self, connection: Connection) -> None:
        while self._next < len(self._jobs):
            number, self._next = self._next, self._next + 1
            while self._num_tokens < self._jobs[number].after_tokens:
                self._progress.clear()
                await self._progress.wait()
            path, body = self._bodies[number]
            record = Record(sent_s=time.perf_counter())
            self._records[number] = record
            await self._read(connection.request("POST", path, body), record)
            record.ended_s = time.perf_counter()

    async def _read(self, parts: AsyncIterator[bytes], record: Record) -> None:
        splitter = EventSplitter()
        async for part in parts:
            now_s = time.perf_counter()
            try:
                events = splitter.feed(part.replace(b"\r\n", b"\n"))
            except EventTooLargeError as err:
                raise HttpTargetError(str(err)) from err
            for event in events:
                data = event_data(event)
                if data and data != DONE_DATA:
                    self._take(json.loads(data), now_s, record)

    def _take(self, value: Any, now_s: float, record: Record) -> None:
        if "error" in value:
            record.error = "the server sent an error"
            return
        if usage := value.get("usage"):
            record.prompt_tokens = usage["prompt_tokens"]
            record.output_tokens = usage["completion_tokens"]
            details = usage.get("prompt_tokens_details") or {}
            record.cached_tokens = details.get("cached_tokens") or 0
        for choice in value.get("choices") or ():
            text = choice.get("text") or (choice.get("delta") or {}).get("content")
            if text:
                record.chunk_s.append(now_s)
                self._num_tokens += 1
                self._progress.set()


def _bounded(num_bytes: int) -> int:
    if not 0 <= num_bytes <= _MAX_BODY_BYTES:
        raise ValueError("the body is too large")
    return num_bytes
