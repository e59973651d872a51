"""What are p50, p90 and p99, exactly, in SQL?  Nearest rank over the rows, never of averages."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, SQLColumnExpression, case, func, select

from telemetry.histogram import ExpHistogram
from telemetry.metrics import NS_PER_S

AnySelect = Select[*tuple[Any, ...]]
PERCENTS: Final = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Count of values and their quantiles in seconds; None of nothing."""

    count: int
    p50: float | None
    p90: float | None
    p99: float | None


NO_VALUES: Final = Quantiles(count=0, p50=None, p90=None, p99=None)


def nearest_rank_ns(
    group: SQLColumnExpression[Any], value_ns: SQLColumnExpression[Any], *where: ColumnElement[bool]
) -> AnySelect:
    """(group, count, p50, p90, p99) in ns, over the rows where ``value_ns`` is not null.

    The rank of the p-th percentile of n values is ceil(p * n / 100); compared in integers, so
    that it does not depend on floating point.  SQLite and PostgreSQL.
    """
    ranked = (
        select(
            group.label("grp"),
            value_ns.label("value"),
            func.row_number().over(partition_by=group, order_by=value_ns).label("rank"),
            func.count().over(partition_by=group).label("n"),
        )
        .where(value_ns.is_not(None), *where)
        .subquery()
        .c
    )
    percentiles = [
        func.min(case((ranked.rank * 100 >= ranked.n * percent, ranked.value)))
        for percent in PERCENTS
    ]
    return select(ranked.grp, func.count(), *percentiles).group_by(ranked.grp)


def from_ns(count: int, p50_ns: int, p90_ns: int, p99_ns: int) -> Quantiles:
    """One result row of ``nearest_rank_ns`` in seconds."""
    return Quantiles(
        count=count, p50=p50_ns / NS_PER_S, p90=p90_ns / NS_PER_S, p99=p99_ns / NS_PER_S
    )


def from_histogram(histogram: ExpHistogram) -> Quantiles:
    """Quantiles of a merged histogram, within its relative error (1.1 %)."""
    return Quantiles(
        count=histogram.count,
        p50=histogram.quantile(0.50),
        p90=histogram.quantile(0.90),
        p99=histogram.quantile(0.99),
    )
