"""How does a load test's run get into the database, whole or not at all to its readers?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Engine, delete, insert, select

from telemetry.db.models import RunRequestRow, RunRow
from telemetry.db.records import Row
from telemetry.histogram import ExpHistogram

CHUNK_ROWS: Final = 1_000
Phase = Literal["warmup", "measure"]


class RunExists(ValueError):
    """A run of this id has been written already."""

    code = "run_exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run; times are unix nanoseconds, ``config_json`` is the profile as it was run."""

    id: str
    label: str
    profile: str
    config_json: str
    started_ns: int
    ended_ns: int
    valid: bool
    invalid_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One request as its client saw it; all ``_ns`` marks are of one clock, unix ns preferred.

    ``intended_ns`` is when the arrival process wanted it sent: headline latencies start there.
    ``error_type`` None means success; ``gap_sketch`` holds the gaps between chunks with text.
    """

    seq: int
    phase: Phase
    intended_ns: int
    trace_id: bytes | None = None
    dispatched_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    ended_ns: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    chunks: int | None = None
    max_gap_ns: int | None = None
    gap_sketch: ExpHistogram | None = None
    status: int | None = None
    error_type: str | None = None


def write_run(engine: Engine, run: RunRecord, requests: Sequence[RunRequest]) -> None:
    """Write a run in short transactions, its own row last: readers see all of it or none.

    Raises: RunExists when the id is taken.  What an interrupted write left behind is replaced.
    """
    with engine.begin() as connection:
        if connection.scalar(select(RunRow.id).where(RunRow.id == run.id)) is not None:
            raise RunExists(f"run {run.id} is already written")
        connection.execute(delete(RunRequestRow).where(RunRequestRow.run_id == run.id))
    for start in range(0, len(requests), CHUNK_ROWS):
        rows = [_request_row(run.id, item) for item in requests[start : start + CHUNK_ROWS]]
        with engine.begin() as connection:
            connection.execute(insert(RunRequestRow), rows)
    with engine.begin() as connection:
        connection.execute(insert(RunRow), _run_row(run))


def _run_row(run: RunRecord) -> Row:
    return {
        "id": run.id,
        "label": run.label,
        "profile": run.profile,
        "config_json": run.config_json,
        "started_ns": run.started_ns,
        "ended_ns": run.ended_ns,
        "valid": run.valid,
        "invalid_reasons": list(run.invalid_reasons),
    }


def _request_row(run_id: str, request: RunRequest) -> Row:
    return {
        "run_id": run_id,
        "seq": request.seq,
        "trace_id": request.trace_id,
        "phase": request.phase,
        "intended_ns": request.intended_ns,
        "dispatched_ns": request.dispatched_ns,
        "first_byte_ns": request.first_byte_ns,
        "first_token_ns": request.first_token_ns,
        "last_token_ns": request.last_token_ns,
        "ended_ns": request.ended_ns,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "cached_tokens": request.cached_tokens,
        "chunks": request.chunks,
        "max_gap_ns": request.max_gap_ns,
        "gap_sketch": request.gap_sketch.to_bytes() if request.gap_sketch else None,
        "status": request.status,
        "error_type": request.error_type,
    }
