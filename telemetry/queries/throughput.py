"""How much was served?  Sums per time bin; every ratio is made from sums, by the reader."""

from sqlalchemy import Select, func, select

from telemetry.db.models import RequestRow
from telemetry.queries.latency import bin_idx, in_window
from telemetry.queries.quantiles import AnySelect
from telemetry.queries.window import Window


def sums_by_bin(window: Window, model: str | None) -> AnySelect:
    """(bin, requests, errors, prompt, cached, output tokens); empty bins are absent.

    Cached tokens are a part of prompt tokens.  Requests count failures too.
    """
    rows = (
        select(
            bin_idx(window).label("bin"),
            RequestRow.error_type,
            RequestRow.prompt_tokens,
            RequestRow.cached_tokens,
            RequestRow.output_tokens,
        )
        .where(*in_window(window, model))
        .subquery()
        .c
    )
    return select(
        rows.bin,
        func.count(),
        func.count(rows.error_type),
        func.coalesce(func.sum(rows.prompt_tokens), 0),
        func.coalesce(func.sum(rows.cached_tokens), 0),
        func.coalesce(func.sum(rows.output_tokens), 0),
    ).group_by(rows.bin)


def models(window: Window) -> AnySelect:
    """(model,) of every model asked for in the window, in order."""
    return (
        select(RequestRow.model)
        .where(*in_window(window, None), RequestRow.model.is_not(None))
        .distinct()
        .order_by(RequestRow.model)
    )


def recent_requests(limit: int) -> Select[RequestRow]:
    """The requests that started last, newest first."""
    newest = (RequestRow.started_ns.desc(), RequestRow.span_id)
    return select(RequestRow).order_by(*newest).limit(limit)
