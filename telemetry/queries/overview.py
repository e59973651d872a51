"""What does the landing page show?  One window: series per bin, and totals over all of it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from telemetry.db.models import RequestRow
from telemetry.histogram import ExpHistogram, merge_all
from telemetry.merging import HistogramSum
from telemetry.queries import latency, throughput
from telemetry.queries.quantiles import NO_VALUES, Quantiles, from_histogram, from_ns
from telemetry.queries.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What was served in one bin or window."""

    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One window; each tuple has ``window.num_bins`` entries."""

    window: Window
    models: tuple[str, ...]
    sums: tuple[Sums, ...]
    ttft: tuple[Quantiles, ...]
    itl: tuple[Quantiles, ...]
    e2e: tuple[Quantiles, ...]
    total_sums: Sums
    total_ttft: Quantiles
    total_itl: Quantiles
    total_e2e: Quantiles
    total_tpot: Quantiles


def overview(connection: Connection, window: Window, model: str | None) -> Overview:
    """Everything the landing page shows, read on one connection."""
    sums = _sums(connection, window, model)
    gaps = _gaps(connection, window, model)
    return Overview(
        window=window,
        models=tuple(connection.scalars(throughput.models(window))),
        sums=tuple(sums.get(k, Sums()) for k in range(window.num_bins)),
        ttft=_series(connection, RequestRow.ttft_ns, window, model),
        itl=tuple(
            from_histogram(gaps[k]) if k in gaps else NO_VALUES for k in range(window.num_bins)
        ),
        e2e=_series(connection, RequestRow.e2e_ns, window, model),
        total_sums=_total(sums.values()),
        total_ttft=_whole(connection, RequestRow.ttft_ns, window, model),
        total_itl=from_histogram(merge_all(gaps.values())),
        total_e2e=_whole(connection, RequestRow.e2e_ns, window, model),
        total_tpot=_whole(connection, RequestRow.tpot_ns, window, model),
    )


def _sums(connection: Connection, window: Window, model: str | None) -> dict[int, Sums]:
    rows = connection.execute(throughput.sums_by_bin(window, model))
    return {
        idx: Sums(
            requests=requests,
            errors=errors,
            prompt_tokens=int(prompt),
            cached_tokens=int(cached),
            output_tokens=int(output),
        )
        for idx, requests, errors, prompt, cached, output in rows
    }


def _total(parts: Iterable[Sums]) -> Sums:
    parts = list(parts)
    return Sums(
        requests=sum(part.requests for part in parts),
        errors=sum(part.errors for part in parts),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        cached_tokens=sum(part.cached_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
    )


def _series(
    connection: Connection, column: latency.LatencyColumn, window: Window, model: str | None
) -> tuple[Quantiles, ...]:
    rows = connection.execute(latency.quantiles_by_bin(column, window, model))
    found = {row[0]: from_ns(*row[1:]) for row in rows}
    return tuple(found.get(k, NO_VALUES) for k in range(window.num_bins))


def _whole(
    connection: Connection, column: latency.LatencyColumn, window: Window, model: str | None
) -> Quantiles:
    row = connection.execute(latency.quantiles_of_window(column, window, model)).first()
    return NO_VALUES if row is None else from_ns(*row[1:])


def _gaps(connection: Connection, window: Window, model: str | None) -> dict[int, ExpHistogram]:
    sums: dict[int, HistogramSum] = defaultdict(HistogramSum)
    for idx, blob in connection.execute(latency.gap_sketches(window, model)):
        sums[idx].add(blob)
    return {idx: part.total() for idx, part in sums.items()}
