"""What is old enough to delete?  Spans after a week; a little at a time, so that writes go on."""

from typing import Final

from sqlalchemy import Engine, delete, select, tuple_

from telemetry.db.models import SpanRow
from telemetry.metrics import NS_PER_S

SPAN_RETENTION_S: Final = 7 * 24 * 3600
CHUNK_ROWS: Final = 5_000


def delete_expired(
    engine: Engine,
    *,
    now_ns: int,
    retention_s: int = SPAN_RETENTION_S,
    chunk_rows: int = CHUNK_ROWS,
) -> int:
    """Delete spans that started more than ``retention_s`` ago; the number deleted.

    Requests, appraisals and runs stay.
    """
    key = tuple_(SpanRow.trace_id, SpanRow.span_id)
    oldest = (
        select(SpanRow.trace_id, SpanRow.span_id)
        .where(SpanRow.started_ns < now_ns - retention_s * NS_PER_S)
        .limit(chunk_rows)
    )
    num_deleted = 0
    while True:
        with engine.begin() as connection:
            num_rows = connection.execute(delete(SpanRow).where(key.in_(oldest))).rowcount
        num_deleted += num_rows
        if num_rows < chunk_rows:
            return num_deleted
