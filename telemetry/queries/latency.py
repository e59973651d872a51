"""How long did requests take, per time bin and over the whole window?

Latencies are of requests that succeeded: a refusal is quick, and would flatter the percentiles.
"""

from sqlalchemy import ColumnElement, literal, select
from sqlalchemy.orm import InstrumentedAttribute

from telemetry.db.models import RequestRow
from telemetry.queries.quantiles import AnySelect, nearest_rank_ns
from telemetry.queries.window import Window

LatencyColumn = InstrumentedAttribute[int] | InstrumentedAttribute[int | None]


def in_window(window: Window, model: str | None) -> tuple[ColumnElement[bool], ...]:
    """Requests that started in the window, of one model or of all."""
    started = RequestRow.started_ns
    conditions = (started >= window.from_ns, started < window.to_ns)
    return conditions if model is None else (*conditions, RequestRow.model == model)


def bin_idx(window: Window) -> ColumnElement[int]:
    """Index of the bin in which the request started."""
    return (RequestRow.started_ns - window.from_ns) // window.step_ns


def quantiles_by_bin(column: LatencyColumn, window: Window, model: str | None) -> AnySelect:
    """(bin, count, p50, p90, p99) in ns of one latency column, exact; empty bins are absent."""
    return nearest_rank_ns(bin_idx(window), column, *_successes(window, model))


def quantiles_of_window(column: LatencyColumn, window: Window, model: str | None) -> AnySelect:
    """(0, count, p50, p90, p99) in ns over the whole window, exact; no row when it is empty."""
    return nearest_rank_ns(literal(0), column, *_successes(window, model))


def gap_sketches(window: Window, model: str | None) -> AnySelect:
    """(bin, ExpHistogram bytes) of each request with gaps; merge, then take quantiles."""
    return select(bin_idx(window), RequestRow.gap_sketch).where(
        RequestRow.gap_sketch.is_not(None), *_successes(window, model)
    )


def _successes(window: Window, model: str | None) -> tuple[ColumnElement[bool], ...]:
    return (*in_window(window, model), RequestRow.error_type.is_(None))
