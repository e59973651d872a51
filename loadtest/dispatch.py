"""When does each request leave?  An open-loop dispatcher over gevent.

Requests start at their intended times whether or not earlier ones have been answered. One that
cannot start because too many are in flight is recorded as skipped, never silently dropped.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

import gevent
from gevent.pool import Pool
from geventhttpclient import HTTPClient

from loadtest.client import StreamOutcome, stream_chat
from loadtest.plan import LoadPlan
from loadtest.records import (
    CONNECTION_FAILED,
    SKIPPED,
    UNFINISHED,
    RequestRecord,
    record_of_stream,
)
from loadtest.workloads import PlannedRequest, chat_body

_LEAD_S = 0.25  # between building the schedule and its first request

OnRecord = Callable[[RequestRecord, int], None]


@dataclass(slots=True)
class Dispatcher:
    """Runs one plan. ``on_record`` hears of each record and its answer's bytes of text chunks."""

    plan: LoadPlan
    api_key: str = field(repr=False)
    sink: TextIO
    on_record: OnRecord
    _anchor_ns: int = 0
    _idle: list[HTTPClient] = field(default_factory=list)
    _pending: dict[int, RequestRecord] = field(default_factory=dict)

    def run(self) -> None:
        """Dispatch everything, then wait at most ``drain_s`` for the last answers."""
        self._anchor_ns = time.time_ns() - time.monotonic_ns()  # one wall anchor for the run
        start_ns = self._now_ns() + int(_LEAD_S * 1e9)
        pool = Pool(self.plan.max_in_flight)
        for request in self.plan.requests:
            intended_ns = start_ns + int(request.intended_s * 1e9)
            gevent.sleep(max(0.0, (intended_ns - self._now_ns()) / 1e9))
            if pool.free_count() == 0:
                self._finish(_bare_record(request, intended_ns, SKIPPED), 0)
                continue
            self._pending[request.seq] = _bare_record(request, intended_ns, UNFINISHED)
            pool.spawn(self._send, request, intended_ns)
        pool.join(timeout=self.plan.drain_s)
        pool.kill()
        for record in list(self._pending.values()):
            self._finish(record, 0)

    def _send(self, request: PlannedRequest, intended_ns: int) -> None:
        trace_id = os.urandom(16).hex()
        dispatched_ns = self._now_ns()
        client = self._idle.pop() if self._idle else self.plan.target.client(concurrency=1)
        try:
            outcome = self._stream(client, request, trace_id)
        except OSError:
            client.close()
            record = RequestRecord(
                seq=request.seq,
                is_warmup=request.is_warmup,
                intended_ns=intended_ns,
                dispatched_ns=dispatched_ns,
                ended_ns=self._now_ns(),
                error_code=CONNECTION_FAILED,
                trace_id=trace_id,
            )
            self._finish(record, 0)
            return
        self._idle.append(client)
        record = record_of_stream(
            outcome.facts,
            seq=request.seq,
            is_warmup=request.is_warmup,
            intended_ns=intended_ns,
            dispatched_ns=dispatched_ns,
            first_byte_ns=outcome.first_byte_ns,
            ended_ns=outcome.ended_ns,
            status=outcome.status,
            trace_id=trace_id,
        )
        self._finish(record, len(outcome.facts.text_chunks_ns))

    def _stream(self, client: HTTPClient, request: PlannedRequest, trace_id: str) -> StreamOutcome:
        span_id = os.urandom(8).hex()
        headers = {
            "authorization": f"Bearer {self.api_key}",
            "accept": "text/event-stream",
            "traceparent": f"00-{trace_id}-{span_id}-01",
        }
        path = f"{self.plan.target.path_prefix}/chat/completions"
        body = chat_body(request, model=self.plan.model)
        return stream_chat(client, path, body, headers=headers, clock_ns=self._now_ns)

    def _finish(self, record: RequestRecord, num_chunks: int) -> None:
        self._pending.pop(record.seq, None)
        self.sink.write(record.to_line() + "\n")
        self.sink.flush()
        self.on_record(record, num_chunks)

    def _now_ns(self) -> int:
        return self._anchor_ns + time.monotonic_ns()


def _bare_record(request: PlannedRequest, intended_ns: int, code: str) -> RequestRecord:
    return RequestRecord(
        seq=request.seq, is_warmup=request.is_warmup, intended_ns=intended_ns, error_code=code
    )
