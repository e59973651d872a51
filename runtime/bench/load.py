"""What did a number of streams see?  Times of each token to throughput, TTFT, ITL and TPOT.

The same records come from an engine in this process and from a server behind HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.bench.report import Cell, NotMeasurable, rounded
from runtime.bench.summary import quantile

_MS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request. It is sent once ``after_tokens`` output tokens of the whole run have come."""

    prompt_token_ids: tuple[int, ...] = field(repr=False)
    max_tokens: int
    after_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Record:
    """What one request saw; seconds on one monotonic clock."""

    sent_s: float
    chunk_s: list[float] = field(default_factory=list)  # arrivals of output
    ended_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        return self.chunk_s[0] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Mean time per output token after the first."""
        return (self.chunk_s[-1] - self.chunk_s[0]) / (self.output_tokens - 1)

    def gaps_s(self) -> list[float]:
        return [b - a for a, b in zip(self.chunk_s, self.chunk_s[1:], strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """Records in the order of the jobs, and how long it all took."""

    records: Sequence[Record]
    wall_s: float

    def require_complete(self) -> None:
        """Raises: NotMeasurable when a request failed: its time would flatter the rest."""
        failed = [record.error or "no output" for record in self.records if not record.chunk_s]
        failed += [record.error for record in self.records if record.chunk_s and record.error]
        if failed:
            raise NotMeasurable(f"{len(failed)} of {len(self.records)} requests: {failed[0]}")


def output_tokens_per_s(run: LoadRun) -> float:
    return sum(record.output_tokens for record in run.records) / run.wall_s


def latency_cells(runs: Sequence[LoadRun]) -> dict[str, Cell]:
    """Milliseconds over the requests of all runs together; ITL is between chunks."""
    records = [record for run in runs for record in run.records]
    ttft = [record.ttft_s for record in records]
    gaps = [gap for record in records for gap in record.gaps_s()]
    tpot = [record.tpot_s for record in records if record.output_tokens > 1]
    return {
        "ttft_p50_ms": _ms(ttft, 0.5),
        "ttft_p99_ms": _ms(ttft, 0.99),
        "itl_p50_ms": _ms(gaps, 0.5),
        "itl_p99_ms": _ms(gaps, 0.99),
        "tpot_p50_ms": _ms(tpot, 0.5),
        "prompt_tokens": sum(record.prompt_tokens for record in records),
        "cached_tokens": sum(record.cached_tokens for record in records),
    }


def gaps_within(record: Record, start_s: float, end_s: float) -> list[float]:
    """Gaps of ``record`` that overlap the time from ``start_s`` to ``end_s``."""
    pairs = zip(record.chunk_s, record.chunk_s[1:], strict=False)
    return [b - a for a, b in pairs if a < end_s and b > start_s]


def _ms(samples: Sequence[float], q: float) -> float | None:
    return rounded(quantile(samples, q) * _MS) if samples else None
