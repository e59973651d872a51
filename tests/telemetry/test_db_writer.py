"""Does the writer write once, say no when full, and never meet a locked database?"""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import Engine, delete, func, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from telemetry import semconv
from telemetry.db.engine import open_engine
from telemetry.db.models import AttestationRow, RequestRow, SpanRow
from telemetry.db.retention import SPAN_RETENTION_S, delete_expired
from telemetry.db.writer import TelemetryWriter, write_spans
from telemetry.histogram import ExpHistogram
from tests.support.patience import PATIENCE_S
from tests.telemetry.spans import MS, SECOND, attest_span, chat_span


def test_a_chat_span_becomes_a_request(engine: Engine) -> None:
    span = chat_span(1, ttft_s=0.1, e2e_ns=500 * MS, gaps_ns=[100 * MS, 300 * MS])
    with engine.begin() as connection:
        write_spans(connection, [span])
    with Session(engine) as session:
        row = session.scalars(select(RequestRow)).one()
        assert (row.ttft_ns, row.e2e_ns, row.tpot_ns) == (100 * MS, 500 * MS, 100 * MS)
        assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (40, 16, 5)
        assert (row.model, row.tenant, row.worker) == ("smollm2-135m", "tenant-a", "worker-0")
        assert (row.status, row.error_type, row.stream, row.chunks) == (200, None, True, 3)
        assert (row.itl_count, row.itl_sum_ns, row.itl_max_ns) == (2, 400 * MS, 300 * MS)
        assert row.gap_sketch is not None
        assert ExpHistogram.from_bytes(row.gap_sketch) == ExpHistogram.from_ns([100 * MS, 300 * MS])
        assert session.scalars(select(SpanRow)).one().attributes[semconv.TENANT_ID] == "tenant-a"


def test_what_a_span_does_not_define_stays_null(engine: Engine) -> None:
    spans = [
        chat_span(1, GEN_AI_REQUEST_STREAM=False, gaps_ns=[MS]),
        chat_span(2, ttft_s=None, ERROR_TYPE="overloaded", HTTP_RESPONSE_STATUS_CODE=503),
        chat_span(3, GEN_AI_USAGE_OUTPUT_TOKENS=1),
        chat_span(4, ttft_s=99.0),  # later than the end: cannot be
        chat_span(5, gaps_ns=[MS], ITL_COUNT=7),  # contradicts its own counts
    ]
    with engine.begin() as connection:
        write_spans(connection, spans)
    with Session(engine) as session:
        whole, failed, single, late, broken = session.scalars(
            select(RequestRow).order_by(RequestRow.span_id)
        )
        assert (whole.ttft_ns, whole.tpot_ns, whole.gap_sketch) == (None, None, None)
        assert (failed.ttft_ns, failed.error_type, failed.status) == (None, "overloaded", 503)
        assert (single.ttft_ns, single.tpot_ns) == (100 * MS, None)
        assert late.ttft_ns is None
        assert (broken.gap_sketch, broken.ttft_ns) == (None, 100 * MS)


def test_an_attest_span_becomes_an_appraisal(engine: Engine) -> None:
    with engine.begin() as connection:
        write_spans(connection, [attest_span(1, tier="contraindicated", ATTESTATION_CODE="format")])
    with Session(engine) as session:
        row = session.scalars(select(AttestationRow)).one()
        assert (row.worker_id, row.tier, row.code) == ("worker-0", "contraindicated", "format")
        assert (row.appraised_ns, row.not_after_ns) == (1_000 * SECOND, 1_600 * SECOND)
        assert session.scalars(select(RequestRow)).all() == []


def test_no_evidence_at_all_is_an_appraisal_of_tier_none(engine: Engine) -> None:
    span = attest_span(1, ERROR_TYPE="upstream_unavailable")
    attributes = {k: v for k, v in span.attributes.items() if k != semconv.ATTESTATION_TIER}
    silent = replace(span, span_id=b"12345678", attributes={semconv.WORKER_ID: "worker-9"})
    with engine.begin() as connection:
        write_spans(connection, [replace(span, attributes=attributes), silent])
    with Session(engine) as session:
        row = session.scalars(select(AttestationRow)).one()
        assert (row.worker_id, row.tier, row.code) == ("worker-0", "none", "upstream_unavailable")


def test_late_and_duplicate_spans_change_nothing(engine: Engine) -> None:
    writer = TelemetryWriter(engine, clock_ns=lambda: 2_000 * SECOND)
    writer.start()
    for e2e_ns in (500 * MS, 900 * MS):
        assert writer.submit_spans([chat_span(1, e2e_ns=e2e_ns)] * 2)
    assert writer.flush()
    writer.stop()
    with Session(engine) as session:
        assert session.scalar(select(func.count()).select_from(SpanRow)) == 1
        assert session.scalars(select(RequestRow)).one().e2e_ns == 500 * MS


def test_full_queue_refuses_and_counts(engine: Engine) -> None:
    writer = TelemetryWriter(engine, clock_ns=lambda: 7 * SECOND, queue_spans=3)
    assert writer.submit_spans([chat_span(1), chat_span(2)])
    assert not writer.submit_spans([chat_span(3), chat_span(4)])
    assert writer.submit_spans([chat_span(5)])
    counts = writer.counts()
    assert (counts.received, counts.dropped, counts.written) == (5, 2, 0)
    writer.start()
    writer.stop()  # flushes
    assert writer.counts().written == 3
    assert not writer.submit_spans([chat_span(6)])


def test_lag_is_the_age_of_the_oldest_span_waiting(engine: Engine) -> None:
    now_ns = [10 * SECOND]
    writer = TelemetryWriter(engine, clock_ns=lambda: now_ns[0])
    writer.submit_spans([chat_span(1)])
    now_ns[0] += 4 * SECOND
    assert writer.counts().lag_s == 4.0


def test_a_failing_database_drops_the_batch_and_goes_on(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE span RENAME TO away"))
    writer = TelemetryWriter(engine, clock_ns=lambda: 2_000 * SECOND)
    writer.start()
    writer.submit_spans([chat_span(1)])
    assert writer.flush()
    assert writer.counts().dropped == 1
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE away RENAME TO span"))
    writer.submit_spans([chat_span(2)])
    assert writer.flush()
    writer.stop()
    assert writer.counts().written == 1
    assert "smollm2" not in caplog.text


def test_a_span_that_no_column_can_hold_drops_its_batch_and_goes_on(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's own OverflowError is no SQLAlchemyError."""
    writer = TelemetryWriter(engine, clock_ns=lambda: 2_000 * SECOND)
    writer.start()
    writer.submit_spans([replace(chat_span(1), started_ns=2**63, ended_ns=2**63)])
    assert writer.flush(PATIENCE_S)
    writer.submit_spans([chat_span(2)])
    assert writer.flush(PATIENCE_S)
    writer.stop()
    assert (writer.counts().dropped, writer.counts().written) == (1, 1)
    assert "smollm2" not in caplog.text


def test_readers_and_a_second_writer_never_see_it_locked(
    engine: Engine, reader: Engine, database_url: str
) -> None:
    """A run of `starshade load` is one more writing process: here, one more engine."""
    writer = TelemetryWriter(engine, clock_ns=lambda: 2_000 * SECOND, batch_spans=50)
    writer.start()
    errors: list[str] = []
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            try:
                with reader.connect() as connection:
                    connection.execute(select(func.sum(RequestRow.e2e_ns))).all()
            except SQLAlchemyError as err:
                errors.append(str(err))

    def write_beside() -> None:
        other = open_engine(database_url)
        while not is_done.is_set():
            try:
                with other.begin() as connection:
                    connection.execute(delete(AttestationRow))
            except SQLAlchemyError as err:
                errors.append(str(err))
            is_done.wait(0.005)
        other.dispose()

    threads = [threading.Thread(target=job) for job in (read, read, write_beside)]
    for thread in threads:
        thread.start()
    for start in range(1, 3_000, 20):
        assert writer.submit_spans([chat_span(number) for number in range(start, start + 20)])
    assert writer.flush(PATIENCE_S)
    is_done.set()
    for thread in threads:
        thread.join()
    writer.stop()
    assert errors == []
    assert writer.counts().dropped == 0
    with reader.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(RequestRow)) == 3_000


def test_retention_deletes_old_spans_in_chunks_and_keeps_requests(engine: Engine) -> None:
    now_ns = 2 * SPAN_RETENTION_S * SECOND
    cut_ns = now_ns - SPAN_RETENTION_S * SECOND
    old = [chat_span(number, started_ns=cut_ns - number) for number in range(1, 8)]
    kept = [chat_span(number, started_ns=cut_ns + number) for number in range(8, 11)]
    with engine.begin() as connection:
        write_spans(connection, old + kept)
    assert delete_expired(engine, now_ns=now_ns, chunk_rows=3) == 7
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(SpanRow)) == 3
        assert connection.scalar(select(func.count()).select_from(RequestRow)) == 10
