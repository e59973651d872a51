"""What did a run amount to?  Records to percentiles, goodput and a verdict on the run itself.

Only requests *intended* inside the measured window count. Latency is told twice: from the intended
start (what a user feels, queueing in the generator included) and from dispatch (the service).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.load_profile import Profile
from loadtest.records import CONNECTION_FAILED, SKIPPED, UNFINISHED, RequestRecord
from telemetry import metrics
from telemetry.metrics import Slo

SUMMARY_VERSION = 1
MIN_SAMPLES_BEYOND = 30  # samples above a quantile before it is worth quoting
MAX_FAILED_RATIO = 0.01
MAX_LATENESS_S = 0.005
MIN_LATENESS_SAMPLES = 300  # three samples lie beyond p99
MAX_LATENESS_RATIO = 0.05  # of the median TTFT


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Exact nearest-rank quantiles in seconds; None without samples."""

    count: int
    p50: float | None
    p90: float | None
    p99: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One measured run. Ratios and rates are derived here and never stored."""

    version: int
    profile: str
    requests: int
    failed: int
    errors: dict[str, int]
    duration_s: float
    requested_rate_per_s: float
    achieved_rate_per_s: float
    goodput_per_s: float
    output_tokens_per_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: Quantiles
    ttft_from_dispatch_s: Quantiles
    itl_s: Quantiles
    tpot_s: Quantiles
    e2e_s: Quantiles
    lateness_s: Quantiles
    is_valid: bool
    invalid_reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def quantiles(values: Iterable[float | None]) -> Quantiles:
    """p50, p90, p99 by nearest rank over the values that are defined."""
    ordered = sorted(value for value in values if value is not None)
    return Quantiles(
        count=len(ordered),
        p50=metrics.quantile(ordered, 0.5),
        p90=metrics.quantile(ordered, 0.9),
        p99=metrics.quantile(ordered, 0.99),
    )


def has_enough_samples(count: int, q: float) -> bool:
    """Is quantile ``q`` of ``count`` samples more than the shape of its few largest?"""
    return count * (1 - q) >= MIN_SAMPLES_BEYOND


def is_good(record: RequestRecord, slo: Slo) -> bool:
    """Did this request meet every bound of the SLO?  A failed one never does."""
    timeline = record.timeline()
    return record.is_ok and slo.is_met(
        ttft_s=metrics.ttft_s(timeline),
        tpot_s=metrics.tpot_s(timeline),
        e2e_s=metrics.e2e_s(timeline),
    )


def summarize(records: Sequence[RequestRecord], profile: Profile) -> RunSummary:
    """The summary of the measured window of one run."""
    measured = [record for record in records if not record.is_warmup]
    ok = [record for record in measured if record.is_ok]
    timelines = [record.timeline() for record in ok]
    window_s = profile.phases.measure_s
    span_s = _span_s(measured) or window_s
    ttft = quantiles(metrics.ttft_s(timeline) for timeline in timelines)
    lateness = quantiles(_lateness_s(record) for record in measured)
    reasons = _invalid_reasons(measured, ttft, lateness)
    output_tokens = sum(record.output_tokens or 0 for record in ok)
    num_good = sum(is_good(record, profile.slo) for record in measured)
    return RunSummary(
        version=SUMMARY_VERSION,
        profile=profile.name,
        requests=len(measured),
        failed=len(measured) - len(ok),
        errors=_count_errors(measured),
        duration_s=window_s,
        requested_rate_per_s=len(measured) / window_s,
        achieved_rate_per_s=len(ok) / span_s,
        goodput_per_s=metrics.goodput_rps(num_good, span_s) or 0.0,
        output_tokens_per_s=output_tokens / span_s,
        prompt_tokens=sum(record.prompt_tokens or 0 for record in ok),
        cached_tokens=sum(record.cached_tokens or 0 for record in ok),
        output_tokens=output_tokens,
        ttft_s=ttft,
        ttft_from_dispatch_s=quantiles(
            metrics.ttft_s(timeline, origin="dispatched") for timeline in timelines
        ),
        itl_s=quantiles(gap for timeline in timelines for gap in metrics.itl_gaps_s(timeline)),
        tpot_s=quantiles(metrics.tpot_s(timeline) for timeline in timelines),
        e2e_s=quantiles(metrics.e2e_s(timeline) for timeline in timelines),
        lateness_s=lateness,
        is_valid=not reasons,
        invalid_reasons=reasons,
    )


def max_lateness_s(ttft: Quantiles) -> float:
    """How late the generator may dispatch (p99) before its own delay colours the result."""
    return max(MAX_LATENESS_S, MAX_LATENESS_RATIO * (ttft.p50 or 0.0))


def judged_lateness_s(lateness: Quantiles) -> float | None:
    """The lateness that decides: p99, or p90 where p99 would be the one or two latest alone."""
    return lateness.p99 if lateness.count >= MIN_LATENESS_SAMPLES else lateness.p90


def _lateness_s(record: RequestRecord) -> float | None:
    dispatched_ns = record.dispatched_ns
    return None if dispatched_ns is None else (dispatched_ns - record.intended_ns) / 1e9


def _span_s(measured: Sequence[RequestRecord]) -> float:
    """From the first intended start to the last one or the last token, as the dashboard counts."""
    if not measured:
        return 0.0
    last_ns = max(max(record.last_token_ns or 0, record.intended_ns) for record in measured)
    return (last_ns - min(record.intended_ns for record in measured)) / 1e9


def _count_errors(records: Sequence[RequestRecord]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in records:
        if not record.is_ok:
            code = record.error_code or f"http_{record.status}"
            counts[code] = counts.get(code, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _invalid_reasons(
    measured: Sequence[RequestRecord], ttft: Quantiles, lateness: Quantiles
) -> tuple[str, ...]:
    if not measured:
        return ("no_requests",)
    reasons = []
    failed = sum(not record.is_ok for record in measured)
    if failed > MAX_FAILED_RATIO * len(measured):
        reasons.append("too_many_failures")
    codes = {record.error_code for record in measured}
    if SKIPPED in codes:
        reasons.append("in_flight_limit_reached")
    if UNFINISHED in codes:
        reasons.append("unfinished_requests")
    if CONNECTION_FAILED in codes:
        reasons.append("connections_failed")
    late_s = judged_lateness_s(lateness)
    if late_s is not None and late_s > max_lateness_s(ttft):
        reasons.append("generator_limited")
    return tuple(reasons)
