"""Does `starshade load run` measure the whole product, and store what it prints?

Client rows (the load generator's) and gateway rows (its spans') meet in one telemetry.db, each
written by the process that owns them; the trace id joins them.
"""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from loadtest.summary import SUMMARY_VERSION, RunSummary
from telemetry.db.engine import open_engine
from telemetry.db.models import RequestRow, RunRequestRow, RunRow
from telemetry.db.url import sqlite_url
from telemetry.histogram import ExpHistogram
from telemetry.metrics import NS_PER_S, nearest_rank
from tests.e2e.support import Installation, installation
from tests.gateway.support import wait_until
from web.app import create_app

PROFILE = """
description = "three seconds for a test"
seed = 7
max_in_flight = 32

[arrivals]
kind = "constant"
rate_per_s = 8

[phases]
warmup_s = 1
measure_s = 2
drain_s = 30

[workload]
prompt_words_min = 4
prompt_words_max = 12
shared_prefix_words = 8
shared_prefixes = 2
output_tokens_min = 4
output_tokens_max = 12

[slo]
ttft_s = 30
"""
NUM_REQUESTS, NUM_MEASURED = 23, 16  # the first after an eighth of a second
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
# A busy machine may send late; nothing else makes this run invalid.
LATE = ["generator_limited"]


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[tuple[Installation, Path]]:
    """An installation whose gateway exports to an observatory, and that one's database."""
    state = tmp_path_factory.mktemp("load") / "state #1?"
    database = state / "telemetry.db"
    with observatory(database) as port:
        endpoint = f"http://127.0.0.1:{port}/v1/traces"
        with installation(
            state,
            tiny_model,
            exports=True,
            telemetry__enabled=True,
            telemetry__endpoint=endpoint,
        ) as running:
            yield running, database


@contextmanager
def observatory(database: Path) -> Iterator[int]:
    config = uvicorn.Config(create_app(sqlite_url(database)), log_config=None, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.fixture
def engine(product: tuple[Installation, Path]) -> Iterator[Engine]:
    engine = open_engine(sqlite_url(product[1]), read_only=True)
    yield engine
    engine.dispose()


def load_run(
    running: Installation, folder: Path, *, key: str | None = None, model: str | None = None
) -> subprocess.CompletedProcess[str]:
    profile = folder / "three-seconds.toml"
    profile.write_text(PROFILE)
    command = [sys.executable, "-m", "gateway.cli", "load", "run", str(profile), "--json"]
    command += ["--base-url", f"{running.base_url}/v1", "--model", model or running.model]
    command += ["--state-dir", str(running.config.state_dir)]
    environ = {**os.environ, "STARSHADE_API_KEY": key or running.key}  # noqa: TID251 - of a child
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_run_is_printed_stored_and_joined_with_the_gateways_rows(
    product: tuple[Installation, Path], engine: Engine, tmp_path: Path
) -> None:
    running, _ = product
    done = load_run(running, tmp_path)
    summary = json.loads(done.stdout)
    # 1. The status says what the summary says, which has the shape it always has.
    assert set(summary) == {field.name for field in dataclasses.fields(RunSummary)}
    assert summary["version"] == SUMMARY_VERSION
    assert summary["invalid_reasons"] in ([], LATE)
    assert (done.returncode, summary["is_valid"]) in ((0, True), (1, False)), done.stderr
    assert (summary["requests"], summary["failed"]) == (NUM_MEASURED, 0)
    # 2. The run and every request of it are stored.
    with Session(engine) as session:
        (run,) = session.scalars(select(RunRow)).all()
        rows = session.scalars(select(RunRequestRow).order_by(RunRequestRow.seq)).all()
    assert (run.profile, run.label) == ("three-seconds", "three-seconds")
    assert (run.valid, run.invalid_reasons) == (summary["is_valid"], summary["invalid_reasons"])
    assert [row.seq for row in rows] == list(range(NUM_REQUESTS))
    assert {row.run_id for row in rows} == {run.id}
    assert [row.phase for row in rows].count("measure") == NUM_MEASURED
    assert {(row.status, row.error_type) for row in rows} == {(200, None)}
    # 3. What was printed follows from what was stored.
    require_same_numbers(summary, [row for row in rows if row.phase == "measure"])
    # 4. The gateway's own row of each request has the same trace, and agrees with the client's.
    gateway_rows = joined(engine, {row.trace_id for row in rows if row.trace_id})
    for row in rows:
        assert row.trace_id is not None
        seen = gateway_rows[row.trace_id]
        assert (seen.model, seen.tenant, seen.worker) == (running.model, "acme", "worker-0")
        assert (seen.status, seen.error_type, seen.stream) == (200, None, True)
        assert (seen.prompt_tokens, seen.cached_tokens, seen.output_tokens) == (
            row.prompt_tokens,
            row.cached_tokens,
            row.output_tokens,
        )
        assert seen.chunks == row.chunks
        assert 0 < (seen.ttft_ns or 0) <= (row.first_token_ns or 0) - (row.dispatched_ns or 0)


def joined(engine: Engine, trace_ids: set[bytes]) -> dict[bytes, RequestRow]:
    """The gateway's rows of these traces, once its exporter has sent them all."""
    found: dict[bytes, RequestRow] = {}

    def are_all_there() -> bool:
        with Session(engine) as session:
            query = select(RequestRow).where(RequestRow.trace_id.in_(trace_ids))
            found.update({row.trace_id: row for row in session.scalars(query)})
        return set(found) == trace_ids

    wait_until(are_all_there, timeout_s=30)
    return found


def require_same_numbers(summary: dict[str, Any], rows: list[RunRequestRow]) -> None:
    """Every percentile and sum again, from the stored rows and by other code."""
    values: dict[str, list[float]] = {
        name: [] for name in ("ttft_s", "ttft_from_dispatch_s", "e2e_s", "tpot_s", "lateness_s")
    }
    gaps = ExpHistogram.from_ns([])
    for row in rows:
        first_ns, ended_ns, sent_ns = row.first_token_ns, row.ended_ns, row.dispatched_ns
        assert first_ns is not None
        assert ended_ns is not None
        assert sent_ns is not None
        assert row.output_tokens is not None
        assert row.gap_sketch is not None
        values["ttft_s"].append((first_ns - row.intended_ns) / NS_PER_S)
        values["ttft_from_dispatch_s"].append((first_ns - sent_ns) / NS_PER_S)
        values["e2e_s"].append((ended_ns - row.intended_ns) / NS_PER_S)
        values["lateness_s"].append((sent_ns - row.intended_ns) / NS_PER_S)
        if row.output_tokens > 1:
            tpot_ns = (ended_ns - first_ns) / (row.output_tokens - 1)
            values["tpot_s"].append(tpot_ns / NS_PER_S)
        gaps = gaps.merge(ExpHistogram.from_bytes(row.gap_sketch))
    for name, measured in values.items():
        ordered = sorted(measured)
        assert summary[name]["count"] == len(ordered), name
        for quantile, q in QUANTILES:
            expected = ordered[nearest_rank(q, len(ordered)) - 1]
            assert summary[name][quantile] == pytest.approx(expected, rel=1e-9), name
    assert summary["itl_s"]["count"] == gaps.count
    for quantile, q in QUANTILES:
        assert summary["itl_s"][quantile] == pytest.approx(gaps.quantile(q), rel=0.011)
    for name in ("prompt_tokens", "cached_tokens", "output_tokens"):
        assert summary[name] == sum(getattr(row, name) or 0 for row in rows)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"key": "sk-starshade-" + "x" * 43}, "API key: invalid_api_key"),
        ({"model": "gpt-4"}, "model 'gpt-4' is not served"),
    ],
    ids=["key", "model"],
)
def test_a_run_that_could_only_fail_is_not_begun(
    product: tuple[Installation, Path],
    engine: Engine,
    tmp_path: Path,
    wrong: dict[str, str],
    words: str,
) -> None:
    with Session(engine) as session:
        runs_before = len(session.scalars(select(RunRow)).all())
    started_s = time.monotonic()
    done = load_run(product[0], tmp_path, **wrong)
    assert time.monotonic() - started_s < 30  # the profile alone, with its drain, may take longer
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "[target_refused]" in done.stderr
    assert "sk-starshade" not in done.stderr
    with Session(engine) as session:
        assert len(session.scalars(select(RunRow)).all()) == runs_before
