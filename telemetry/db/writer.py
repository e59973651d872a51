"""How do spans reach the database without ever holding up whoever sends them?

A queue bounded in spans, one thread, one short transaction per batch.  When the queue is full the
caller is told so at once; when the database fails the batch is dropped; both are counted.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from telemetry.db import retention
from telemetry.db.models import AttestationRow, Base, RequestRow, SpanRow
from telemetry.db.records import Row, SpanRecord, attestation_row, request_row, span_row
from telemetry.metrics import NS_PER_S

QUEUE_SPANS: Final = 50_000
BATCH_SPANS: Final = 1_000
ATTEMPTS: Final = 3
RETENTION_INTERVAL_S: Final = 600.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterCounts:
    """What became of the spans submitted so far, and how far behind the writer is."""

    received: int
    written: int
    dropped: int
    lag_s: float


class TelemetryWriter:
    """The one writer of spans in this process; `start` it, `stop` it to flush."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock_ns: Callable[[], int],
        queue_spans: int = QUEUE_SPANS,
        batch_spans: int = BATCH_SPANS,
    ) -> None:
        """``clock_ns`` is unix ns: it dates the lag and what is old enough to delete."""
        self._engine = engine
        self._clock_ns = clock_ns
        self._queue_spans = queue_spans
        self._batch_spans = batch_spans
        self._pending: deque[tuple[int, Sequence[SpanRecord]]] = deque()
        self._num_pending = self._num_received = self._num_written = self._num_dropped = 0
        self._last_lag_ns = self._next_retention_ns = 0
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="telemetry-writer", daemon=True)

    def start(self) -> None:
        """Start the thread; once."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Write what is queued, then end the thread; gives up after ``timeout_s``."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def submit_spans(self, spans: Sequence[SpanRecord]) -> bool:
        """Queue spans for writing; False, and counted as dropped, when they do not fit."""
        with self._changed:
            self._num_received += len(spans)
            if self._is_stopping or self._num_pending + len(spans) > self._queue_spans:
                self._num_dropped += len(spans)
                return False
            if spans:
                self._num_pending += len(spans)
                self._pending.append((self._clock_ns(), spans))
                self._changed.notify_all()
            return True

    def count_dropped(self, num_spans: int) -> None:
        """Count spans that were refused before they could be submitted."""
        with self._changed:
            self._num_received += num_spans
            self._num_dropped += num_spans

    def counts(self) -> WriterCounts:
        """Counts so far; lag is the age of the oldest span in the queue, or of the last batch."""
        with self._changed:
            lag_ns = self._last_lag_ns
            if self._pending:
                lag_ns = max(lag_ns, self._clock_ns() - self._pending[0][0])
            return WriterCounts(
                received=self._num_received,
                written=self._num_written,
                dropped=self._num_dropped,
                lag_s=max(0, lag_ns) / NS_PER_S,
            )

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything submitted so far is written or dropped."""
        with self._changed:
            return self._changed.wait_for(lambda: self._num_pending == 0, timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                woken = self._changed.wait_for(
                    lambda: bool(self._pending) or self._is_stopping, RETENTION_INTERVAL_S
                )
                batch, submitted_ns = self._take_batch()
            if batch:
                self._write(batch, submitted_ns)
            elif woken:
                return
            self._delete_expired_when_due()

    def _take_batch(self) -> tuple[list[SpanRecord], int]:
        batch: list[SpanRecord] = []
        oldest_ns = self._pending[0][0] if self._pending else 0
        while self._pending and len(batch) < self._batch_spans:
            batch.extend(self._pending.popleft()[1])
        return batch, oldest_ns

    def _write(self, batch: Sequence[SpanRecord], submitted_ns: int) -> None:
        is_written = self._try_write(batch)
        with self._changed:
            self._num_pending -= len(batch)
            if is_written:
                self._num_written += len(batch)
            else:
                self._num_dropped += len(batch)
            self._last_lag_ns = self._clock_ns() - submitted_ns
            self._changed.notify_all()

    def _try_write(self, batch: Sequence[SpanRecord]) -> bool:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._engine.begin() as connection:
                    write_spans(connection, batch)
            except Exception as err:  # the thread's edge: one bad batch must not end the writing
                kind = type(err).__name__  # the text would quote the rows
                logger.warning("span batch not written", extra={"attempt": attempt, "error": kind})
                if not isinstance(err, SQLAlchemyError):
                    return False  # it is the batch, not the database: another attempt is no use
            else:
                return True
        return False

    def _delete_expired_when_due(self) -> None:
        now_ns = self._clock_ns()
        if now_ns < self._next_retention_ns:
            return
        self._next_retention_ns = now_ns + round(RETENTION_INTERVAL_S * NS_PER_S)
        try:
            retention.delete_expired(self._engine, now_ns=now_ns)
        except SQLAlchemyError as err:
            logger.warning("retention failed", extra={"error": type(err).__name__})


def write_spans(connection: Connection, spans: Sequence[SpanRecord]) -> None:
    """Insert spans and the request and attestation rows that follow from them.

    A span already there, by (trace_id, span_id), is left as it is.
    """
    insert_new(connection, SpanRow, [span_row(span) for span in spans])
    requests = [row for span in spans if (row := request_row(span)) is not None]
    insert_new(connection, RequestRow, requests)
    attestations = [row for span in spans if (row := attestation_row(span)) is not None]
    insert_new(connection, AttestationRow, attestations)


def insert_new(connection: Connection, table: type[Base], rows: Sequence[Row]) -> None:
    """Insert the rows whose primary key is not there yet; in SQLite and PostgreSQL alike."""
    if not rows:
        return
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(table).on_conflict_do_nothing(), list(rows))
