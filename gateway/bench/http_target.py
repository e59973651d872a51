"""How does a server behind HTTP answer the cases of `runtime.bench.serving`?

Connections are opened before the clock starts and kept over a run.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvloop

from gateway.bench.http_connection import Connection, HttpTargetError, Server
from gateway.sse import DONE_DATA, EventSplitter, EventTooLargeError, event_data
from runtime.bench.load import Job, LoadRun, Record


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
            await connection.ask("POST", path, body, self._reader(record))
            record.ended_s = time.perf_counter()

    def _reader(self, record: Record) -> Callable[[bytes], None]:
        """What takes the parts of one answer. It raises HttpTargetError."""
        splitter = EventSplitter()

        def read(part: bytes) -> None:
            now_s = time.perf_counter()
            try:
                events = splitter.feed(part.replace(b"\r\n", b"\n"))
            except EventTooLargeError as err:
                raise HttpTargetError(str(err)) from err
            for event in events:
                data = event_data(event)
                if data and data != DONE_DATA:
                    self._take(json.loads(data), now_s, record)

        return read

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
