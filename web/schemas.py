"""What does the JSON API answer?  Wire models; times are unix seconds, latencies seconds.

Null is unknown or undefined, never zero.  Series are parallel arrays of one length.
"""

from pydantic import BaseModel, ConfigDict


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class QuantilesOut(_Wire):
    """Quantiles of one set of values."""

    count: int
    p50: float | None
    p90: float | None
    p99: float | None


class QuantileSeries(_Wire):
    """Quantiles per bin."""

    count: list[int]
    p50: list[float | None]
    p90: list[float | None]
    p99: list[float | None]


class Series(_Wire):
    """One value per bin; ``t_s`` is where the bin begins."""

    t_s: list[float]
    requests: list[int]
    errors: list[int]
    prompt_tokens: list[int]
    cached_tokens: list[int]
    output_tokens: list[int]
    ttft_s: QuantileSeries
    itl_s: QuantileSeries
    e2e_s: QuantileSeries


class Totals(_Wire):
    """The whole window."""

    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: QuantilesOut
    itl_s: QuantilesOut
    e2e_s: QuantilesOut
    tpot_s: QuantilesOut


class Ingest(_Wire):
    """Spans received and dropped since the observatory started, and how far it is behind."""

    received: int
    dropped: int
    lag_s: float | None


class OverviewOut(_Wire):
    """GET /api/overview."""

    now_s: float
    from_s: float
    to_s: float
    step_s: float
    models: list[str]
    series: Series
    totals: Totals
    ingest: Ingest


class RunOut(_Wire):
    """One load test."""

    id: str
    label: str
    profile: str
    started_s: float
    ended_s: float
    valid: bool
    invalid_reasons: list[str]
    requests: int
    failed: int
    output_tokens: int
    ttft_s: QuantilesOut
    itl_s: QuantilesOut
    e2e_s: QuantilesOut
    tpot_s: QuantilesOut
    achieved_rate: float | None


class RunsOut(_Wire):
    """GET /api/runs."""

    runs: list[RunOut]


class WorkerOut(_Wire):
    """The last appraisal of one worker."""

    id: str
    tier: str
    code: str | None
    tee: str | None
    simulated: bool | None
    trust_anchor: str | None
    policy: str | None
    verdict_id: str | None
    weights_sha256: str | None
    appraised_s: float
    not_after_s: float | None
    reason: str


class WorkersOut(_Wire):
    """GET /api/workers."""

    workers: list[WorkerOut]


class RequestOut(_Wire):
    """One request; ``trace_id`` in hex."""

    trace_id: str
    started_s: float
    model: str | None
    worker: str | None
    status: int | None
    error_type: str | None
    ttft_s: float | None
    e2e_s: float
    tpot_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None


class RequestsOut(_Wire):
    """GET /api/requests."""

    requests: list[RequestOut]
