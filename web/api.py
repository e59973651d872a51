"""GET /api/*: how do the answers of `telemetry.queries` become JSON?"""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from telemetry.db.models import AttestationRow, RequestRow
from telemetry.db.writer import TelemetryWriter
from telemetry.metrics import NS_PER_S
from telemetry.queries import runs, throughput, trust
from telemetry.queries.overview import Overview, Sums, overview
from telemetry.queries.quantiles import Quantiles
from telemetry.queries.window import MAX_WINDOW_S, MIN_WINDOW_S, bin_window
from web import schemas

MAX_ROWS = 500
MAX_UNTIL_S = 4_102_444_800  # the year 2100

router = APIRouter(prefix="/api")
Limit = Annotated[int, Query(ge=1, le=MAX_ROWS)]


@router.get("/overview")
def get_overview(
    request: Request,
    window_s: Annotated[int, Query(ge=MIN_WINDOW_S, le=MAX_WINDOW_S)] = 3600,
    until_s: Annotated[float | None, Query(ge=0, le=MAX_UNTIL_S)] = None,
    model: Annotated[str | None, Query(max_length=128)] = None,
) -> schemas.OverviewOut:
    """Series and totals of the last ``window_s`` seconds before ``until_s`` (default: now)."""
    now_ns = _clock_ns(request)()
    until_ns = now_ns if until_s is None else round(until_s * NS_PER_S)
    window = bin_window(until_ns=until_ns, window_s=window_s)
    with _reader(request).connect() as connection:
        answer = overview(connection, window, model)
    return schemas.OverviewOut(
        now_s=now_ns / NS_PER_S,
        from_s=window.from_ns / NS_PER_S,
        to_s=window.to_ns / NS_PER_S,
        step_s=window.step_ns / NS_PER_S,
        models=list(answer.models),
        series=_series(answer),
        totals=_totals(answer),
        ingest=_ingest(request.app.state.writer),
    )


@router.get("/runs")
def get_runs(request: Request, limit: Limit = 50) -> schemas.RunsOut:
    """Load tests, newest first."""
    with Session(_reader(request)) as session:
        found = session.scalars(runs.recent_runs(limit)).all()
        answers = runs.summaries(session.connection(), found)
        return schemas.RunsOut(runs=[_run(answer) for answer in answers])


@router.get("/workers")
def get_workers(request: Request) -> schemas.WorkersOut:
    """The last appraisal of each worker."""
    now_ns = _clock_ns(request)()
    with Session(_reader(request)) as session:
        rows = session.scalars(trust.latest_appraisals(now_ns=now_ns))
        return schemas.WorkersOut(workers=[_worker(row, now_ns) for row in rows])


@router.get("/requests")
def get_requests(request: Request, limit: Limit = 100) -> schemas.RequestsOut:
    """Requests, newest first."""
    with Session(_reader(request)) as session:
        rows = session.scalars(throughput.recent_requests(limit))
        return schemas.RequestsOut(requests=[_request(row) for row in rows])


def _reader(request: Request) -> Engine:
    engine: Engine = request.app.state.reader
    return engine


def _clock_ns(request: Request) -> Callable[[], int]:
    clock_ns: Callable[[], int] = request.app.state.clock_ns
    return clock_ns


def _series(answer: Overview) -> schemas.Series:
    window = answer.window
    starts_ns = range(window.from_ns, window.to_ns, window.step_ns)

    def column(get: Callable[[Sums], int]) -> list[int]:
        return [get(sums) for sums in answer.sums]

    return schemas.Series(
        t_s=[start_ns / NS_PER_S for start_ns in starts_ns],
        requests=column(lambda sums: sums.requests),
        errors=column(lambda sums: sums.errors),
        prompt_tokens=column(lambda sums: sums.prompt_tokens),
        cached_tokens=column(lambda sums: sums.cached_tokens),
        output_tokens=column(lambda sums: sums.output_tokens),
        ttft_s=_quantile_series(answer.ttft),
        itl_s=_quantile_series(answer.itl),
        e2e_s=_quantile_series(answer.e2e),
    )


def _totals(answer: Overview) -> schemas.Totals:
    sums = answer.total_sums
    return schemas.Totals(
        requests=sums.requests,
        errors=sums.errors,
        prompt_tokens=sums.prompt_tokens,
        cached_tokens=sums.cached_tokens,
        output_tokens=sums.output_tokens,
        ttft_s=_quantiles(answer.total_ttft),
        itl_s=_quantiles(answer.total_itl),
        e2e_s=_quantiles(answer.total_e2e),
        tpot_s=_quantiles(answer.total_tpot),
    )


def _ingest(writer: TelemetryWriter) -> schemas.Ingest:
    counts = writer.counts()
    lag_s = counts.lag_s if counts.received else None
    return schemas.Ingest(received=counts.received, dropped=counts.dropped, lag_s=lag_s)


def _quantiles(values: Quantiles) -> schemas.QuantilesOut:
    return schemas.QuantilesOut(count=values.count, p50=values.p50, p90=values.p90, p99=values.p99)


def _quantile_series(series: Sequence[Quantiles]) -> schemas.QuantileSeries:
    return schemas.QuantileSeries(
        count=[values.count for values in series],
        p50=[values.p50 for values in series],
        p90=[values.p90 for values in series],
        p99=[values.p99 for values in series],
    )


def _run(answer: runs.RunSummary) -> schemas.RunOut:
    run = answer.run
    return schemas.RunOut(
        id=run.id,
        label=run.label,
        profile=run.profile,
        started_s=run.started_ns / NS_PER_S,
        ended_s=run.ended_ns / NS_PER_S,
        valid=run.valid,
        invalid_reasons=run.invalid_reasons,
        requests=answer.requests,
        failed=answer.failed,
        output_tokens=answer.output_tokens,
        ttft_s=_quantiles(answer.ttft),
        itl_s=_quantiles(answer.itl),
        e2e_s=_quantiles(answer.e2e),
        tpot_s=_quantiles(answer.tpot),
        achieved_rate=answer.achieved_rate,
    )


def _worker(row: AttestationRow, now_ns: int) -> schemas.WorkerOut:
    return schemas.WorkerOut(
        id=row.worker_id,
        tier=row.tier,
        code=row.code,
        tee=row.tee,
        simulated=row.simulated,
        trust_anchor=row.trust_anchor,
        policy=row.policy,
        verdict_id=row.verdict_id,
        weights_sha256=row.weights_sha256,
        appraised_s=row.appraised_ns / NS_PER_S,
        not_after_s=_seconds(row.not_after_ns),
        reason=trust.reason(
            tier=row.tier,
            code=row.code,
            simulated=row.simulated,
            not_after_ns=row.not_after_ns,
            now_ns=now_ns,
        ),
    )


def _request(row: RequestRow) -> schemas.RequestOut:
    return schemas.RequestOut(
        trace_id=row.trace_id.hex(),
        started_s=row.started_ns / NS_PER_S,
        model=row.model,
        worker=row.worker,
        status=row.status,
        error_type=row.error_type,
        ttft_s=_seconds(row.ttft_ns),
        e2e_s=row.e2e_ns / NS_PER_S,
        tpot_s=_seconds(row.tpot_ns),
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
    )


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_S
