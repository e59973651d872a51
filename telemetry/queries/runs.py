"""What did each load test measure?  Exact quantiles over its measured requests, warm-up left out.

Headline latencies count from the intended send time, so that a generator that falls behind shows.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from telemetry.db.models import RunRequestRow, RunRow
from telemetry.merging import HistogramSum
from telemetry.metrics import NS_PER_S
from telemetry.queries.quantiles import (
    NO_VALUES,
    AnySelect,
    Quantiles,
    from_histogram,
    from_ns,
    nearest_rank_ns,
)

_TTFT_NS = RunRequestRow.first_token_ns - RunRequestRow.intended_ns
_LAST_NS = case(
    (RunRequestRow.last_token_ns > RunRequestRow.intended_ns, RunRequestRow.last_token_ns),
    else_=RunRequestRow.intended_ns,
)
_ENDED_NS = func.coalesce(RunRequestRow.ended_ns, RunRequestRow.last_token_ns)  # rows of old
_E2E_NS = _ENDED_NS - RunRequestRow.intended_ns
_TPOT_NS = case(
    (
        RunRequestRow.output_tokens >= 2,
        (_ENDED_NS - RunRequestRow.first_token_ns) // (RunRequestRow.output_tokens - 1),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run with what was measured in it; ``achieved_rate`` in successful requests/s."""

    run: RunRow
    requests: int
    failed: int
    output_tokens: int
    ttft: Quantiles
    itl: Quantiles
    e2e: Quantiles
    tpot: Quantiles
    achieved_rate: float | None


def recent_runs(limit: int) -> Select[RunRow]:
    """The runs that started last, newest first."""
    return select(RunRow).order_by(RunRow.started_ns.desc(), RunRow.id).limit(limit)


def run_sums(run_ids: Sequence[str]) -> AnySelect:
    """(run, requests, failed, output tokens, first intended ns, last intended or token ns)."""
    return (
        select(
            RunRequestRow.run_id,
            func.count(),
            func.count(RunRequestRow.error_type),
            func.coalesce(func.sum(RunRequestRow.output_tokens), 0),
            func.min(RunRequestRow.intended_ns),
            func.max(_LAST_NS),
        )
        .where(*_measured(run_ids))
        .group_by(RunRequestRow.run_id)
    )


def run_quantiles(value_ns: ColumnElement[Any], run_ids: Sequence[str]) -> AnySelect:
    """(run, count, p50, p90, p99) in ns over successful measured requests."""
    return nearest_rank_ns(RunRequestRow.run_id, value_ns, *_successes(run_ids))


def run_gap_sketches(run_ids: Sequence[str]) -> AnySelect:
    """(run, ExpHistogram bytes) of each successful measured request with gaps."""
    return select(RunRequestRow.run_id, RunRequestRow.gap_sketch).where(
        RunRequestRow.gap_sketch.is_not(None), *_successes(run_ids)
    )


def summaries(connection: Connection, runs: Sequence[RunRow]) -> list[RunSummary]:
    """A summary of each run, in the order given."""
    run_ids = [run.id for run in runs]
    sums = {row[0]: row[1:] for row in connection.execute(run_sums(run_ids))}
    ttft = _quantiles(connection, _TTFT_NS, run_ids)
    e2e = _quantiles(connection, _E2E_NS, run_ids)
    tpot = _quantiles(connection, _TPOT_NS, run_ids)
    gaps: dict[str, HistogramSum] = defaultdict(HistogramSum)
    for run_id, blob in connection.execute(run_gap_sketches(run_ids)):
        gaps[run_id].add(blob)
    found = []
    for run in runs:
        requests, failed, output_tokens, first_ns, last_ns = sums.get(run.id, (0, 0, 0, None, None))
        found.append(
            RunSummary(
                run=run,
                requests=requests,
                failed=failed,
                output_tokens=int(output_tokens),
                ttft=ttft.get(run.id, NO_VALUES),
                itl=from_histogram(gaps[run.id].total()),
                e2e=e2e.get(run.id, NO_VALUES),
                tpot=tpot.get(run.id, NO_VALUES),
                achieved_rate=_rate(requests - failed, first_ns, last_ns),
            )
        )
    return found


def _quantiles(
    connection: Connection, value_ns: ColumnElement[Any], run_ids: Sequence[str]
) -> dict[str, Quantiles]:
    rows = connection.execute(run_quantiles(value_ns, run_ids))
    return {row[0]: from_ns(*row[1:]) for row in rows}


def _rate(num_succeeded: int, first_ns: int | None, last_ns: int | None) -> float | None:
    if first_ns is None or last_ns is None or last_ns <= first_ns:
        return None
    return num_succeeded / ((last_ns - first_ns) / NS_PER_S)


def _measured(run_ids: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return (RunRequestRow.run_id.in_(run_ids), RunRequestRow.phase == "measure")


def _successes(run_ids: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return (*_measured(run_ids), RunRequestRow.error_type.is_(None))
