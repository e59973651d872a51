"""What would a gateway and a load run have recorded?  Seeded spans and runs for tests."""

import math
import random
from collections.abc import Sequence

from telemetry import semconv
from telemetry.db.records import SpanRecord
from telemetry.db.runs import RunRecord, RunRequest
from telemetry.histogram import ExpHistogram
from telemetry.metrics import NS_PER_S
from telemetry.redact import AttributeValue

MODEL = "smollm2-135m"


def chat_span(
    rng: random.Random,
    *,
    started_ns: int,
    model: str = MODEL,
    gaps_s: Sequence[float] = (0.02, 0.03),
    ttft_s: float = 0.2,
    prompt_tokens: int = 100,
    cached_tokens: int = 32,
    error_type: str | None = None,
) -> SpanRecord:
    """A gateway's root span of one streamed chat request; failed when it has an ``error_type``."""
    attributes: dict[str, AttributeValue] = {
        semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_CHAT,
        semconv.GEN_AI_REQUEST_MODEL: model,
        semconv.GEN_AI_REQUEST_STREAM: True,
        semconv.WORKER_ID: "worker-0",
        semconv.HTTP_RESPONSE_STATUS_CODE: 200 if error_type is None else 503,
    }
    if error_type is not None:
        attributes[semconv.ERROR_TYPE] = error_type
        e2e_s = 0.01
    else:
        e2e_s = ttft_s + math.fsum(gaps_s) + 0.002
        attributes |= {
            semconv.GEN_AI_RESPONSE_MODEL: model,
            semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: ttft_s,
            semconv.GEN_AI_USAGE_INPUT_TOKENS: prompt_tokens,
            semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: cached_tokens,
            semconv.GEN_AI_USAGE_OUTPUT_TOKENS: len(gaps_s) + 1,
            semconv.OUTPUT_CHUNKS: len(gaps_s) + 1,
            **ExpHistogram.from_values(gaps_s).to_attributes(),
        }
    return _span(rng, f"chat {MODEL}", "server", started_ns, e2e_s, attributes)


def attest_span(
    rng: random.Random,
    *,
    worker_id: str,
    tier: str,
    at_ns: int,
    not_after_ns: int,
    simulated: bool = False,
    code: str | None = None,
) -> SpanRecord:
    """A gateway's span of one appraisal."""
    attributes: dict[str, AttributeValue] = {
        semconv.WORKER_ID: worker_id,
        semconv.ATTESTATION_TIER: tier,
        semconv.ATTESTATION_TEE: "fake-tdx" if simulated else "tdx",
        semconv.ATTESTATION_SIMULATED: simulated,
        semconv.ATTESTATION_TRUST_ANCHOR: "fake" if simulated else "intel-sgx-root-ca",
        semconv.ATTESTATION_POLICY: "development" if simulated else "production",
        semconv.ATTESTATION_VERDICT_ID: rng.randbytes(16).hex(),
        semconv.ATTESTATION_NOT_AFTER_S: not_after_ns / NS_PER_S,
        semconv.ATTESTATION_WEIGHTS_SHA256: rng.randbytes(32).hex(),
    }
    if code is not None:
        attributes[semconv.ATTESTATION_CODE] = code
    return _span(rng, f"attest {worker_id}", "internal", at_ns - NS_PER_S // 20, 0.05, attributes)


def busy_hour(rng: random.Random, *, until_ns: int, num_requests: int) -> list[SpanRecord]:
    """Chat spans of one hour with a daily shape, an idle quarter and one failure in thirty."""
    spans = []
    for _ in range(num_requests):
        minute = rng.choice([m for m in range(60) if not 20 <= m < 28])
        slow = 1 + 0.4 * math.sin(minute / 9)
        failed = rng.random() < 1 / 30
        spans.append(
            chat_span(
                rng,
                started_ns=until_ns - NS_PER_S * 60 * (59 - minute) - rng.randrange(50 * NS_PER_S),
                gaps_s=[slow * 0.021 * rng.lognormvariate(0, 0.25) for _ in range(31)],
                ttft_s=slow * 0.18 * rng.lognormvariate(0, 0.35),
                prompt_tokens=rng.randint(60, 220),
                cached_tokens=rng.randint(16, 60),
                error_type="upstream_verification_failed" if failed else None,
            )
        )
    return spans


def load_run(
    rng: random.Random,
    *,
    run_id: str,
    label: str,
    started_ns: int,
    num_requests: int,
    num_failed: int = 0,
    invalid_reasons: tuple[str, ...] = (),
) -> tuple[RunRecord, list[RunRequest]]:
    """A finished run of one request each 100 ms; its first ``num_failed`` requests failed."""
    requests = []
    for seq in range(num_requests):
        intended_ns = started_ns + seq * NS_PER_S // 10
        first_ns = intended_ns + round(NS_PER_S * 0.18 * rng.lognormvariate(0, 0.3))
        gaps_ns = [round(NS_PER_S * 0.02 * rng.lognormvariate(0, 0.2)) for _ in range(15)]
        failed = seq < num_failed
        requests.append(
            RunRequest(
                seq=seq,
                phase="measure",
                intended_ns=intended_ns,
                dispatched_ns=intended_ns + 300_000,
                first_byte_ns=None if failed else first_ns - 1_000_000,
                first_token_ns=None if failed else first_ns,
                last_token_ns=None if failed else first_ns + sum(gaps_ns),
                output_tokens=None if failed else 16,
                chunks=None if failed else 16,
                max_gap_ns=None if failed else max(gaps_ns),
                gap_sketch=None if failed else ExpHistogram.from_ns(gaps_ns),
                status=503 if failed else 200,
                error_type="overloaded" if failed else None,
            )
        )
    run = RunRecord(
        id=run_id,
        label=label,
        profile="smoke",
        config_json="{}",
        started_ns=started_ns,
        ended_ns=started_ns + num_requests * NS_PER_S // 10 + NS_PER_S,
        valid=not invalid_reasons,
        invalid_reasons=invalid_reasons,
    )
    return run, requests


def _span(
    rng: random.Random,
    name: str,
    kind: str,
    started_ns: int,
    duration_s: float,
    attributes: dict[str, AttributeValue],
) -> SpanRecord:
    failed = semconv.ERROR_TYPE in attributes
    return SpanRecord(
        trace_id=rng.randbytes(16),
        span_id=rng.randbytes(8),
        parent_id=None,
        name=name,
        kind=kind,
        started_ns=started_ns,
        ended_ns=started_ns + round(duration_s * NS_PER_S),
        status="error" if failed else "ok",
        service=semconv.SERVICE_GATEWAY,
        instance="gateway-0",
        attributes=attributes,
    )
