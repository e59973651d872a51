"""The real observatory for a browser: `web.app.create_app` on a port, over rows of our choice."""

import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from telemetry.db.engine import migrate, open_engine
from telemetry.db.records import SpanRecord
from telemetry.db.runs import RunRecord, RunRequest, write_run
from telemetry.db.url import sqlite_url
from telemetry.db.writer import TelemetryWriter
from telemetry.metrics import NS_PER_S
from tests.support.observatory_rows import attest_span, busy_hour, chat_span, load_run
from tests.support.patience import PATIENCE_S
from tests.support.resources import dashboard_dir
from web.app import create_app

# The clock stands still at 30 Nov 2026, 12:00:00 UTC, so that every number is the same each time.
NOW_NS = 1_796_040_000 * NS_PER_S
HOSTILE = "<img src=x onerror=alert(1)>"

Run = tuple[RunRecord, Sequence[RunRequest]]


@contextmanager
def observatory(
    folder: Path, *, spans: Sequence[SpanRecord] = (), runs: Sequence[Run] = ()
) -> Iterator[str]:
    """The base URL of a running observatory whose database holds these rows."""
    url = sqlite_url(folder / "telemetry.db")
    _write(url, spans, runs)
    app = create_app(url, static_dir=dashboard_dir(), clock_ns=lambda: NOW_NS)
    config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not server.started and time.monotonic() < deadline:
            thread.join(0.02)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


def full_house() -> tuple[list[SpanRecord], list[Run]]:
    """A busy hour, workers of every tier, runs good and bad, and names that try to be markup."""
    rng = random.Random(20261130)
    hour_ns = 3600 * NS_PER_S
    spans = busy_hour(rng, until_ns=NOW_NS, num_requests=900)
    spans.append(chat_span(rng, started_ns=NOW_NS - 4 * NS_PER_S, model=HOSTILE))
    until_ns = NOW_NS + hour_ns
    at_ns = NOW_NS - 42 * NS_PER_S
    spans += [
        attest_span(
            rng, worker_id="worker-0", tier="warning", at_ns=at_ns, not_after_ns=until_ns,
            simulated=True,
        ),
        attest_span(
            rng, worker_id="worker-1", tier="affirming", at_ns=at_ns, not_after_ns=until_ns
        ),
        attest_span(
            rng, worker_id="worker-2", tier="contraindicated", at_ns=at_ns, not_after_ns=until_ns,
            code="tcb_status",
        ),
        attest_span(
            rng, worker_id="worker-3", tier="affirming", at_ns=NOW_NS - 2 * hour_ns,
            not_after_ns=NOW_NS - 200 * NS_PER_S,
        ),
    ]  # fmt: skip
    runs: list[Run] = [
        load_run(
            rng, run_id="run-few", label="smoke", started_ns=NOW_NS - 600 * NS_PER_S,
            num_requests=42,
        ),
        load_run(
            rng, run_id="run-many", label="steady 10 req/s", started_ns=NOW_NS - 2 * hour_ns,
            num_requests=3200, num_failed=3, invalid_reasons=("generator_late",),
        ),
        load_run(
            rng, run_id="run-hostile", label=HOSTILE, started_ns=NOW_NS - 3 * hour_ns,
            num_requests=320,
        ),
    ]  # fmt: skip
    return spans, runs


def _write(url: str, spans: Sequence[SpanRecord], runs: Sequence[Run]) -> None:
    engine = open_engine(url)
    migrate(engine)
    writer = TelemetryWriter(engine, clock_ns=lambda: NOW_NS)
    writer.start()
    for start in range(0, len(spans), 500):
        if not writer.submit_spans(spans[start : start + 500]) or not writer.flush(PATIENCE_S):
            raise RuntimeError("the writer did not take the rows of this test")
    writer.stop()
    for run, requests in runs:
        write_run(engine, run, requests)
    engine.dispose()
