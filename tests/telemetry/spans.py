"""Spans as a gateway and a worker send them, for tests of what follows from them."""

from collections.abc import Sequence

from telemetry import semconv
from telemetry.db.records import SpanRecord
from telemetry.histogram import ExpHistogram
from telemetry.redact import AttributeValue

SECOND = 1_000_000_000
MS = 1_000_000


def chat_span(
    number: int,
    *,
    started_ns: int = 1_000 * SECOND,
    e2e_ns: int = 500 * MS,
    ttft_s: float | None = 0.1,
    gaps_ns: Sequence[int] = (),
    **attributes: AttributeValue,
) -> SpanRecord:
    """A gateway's root span; ``attributes`` by semconv constant name override the usual ones."""
    usual: dict[str, AttributeValue] = {
        semconv.GEN_AI_OPERATION_NAME: "chat",
        semconv.GEN_AI_REQUEST_MODEL: "smollm2-135m",
        semconv.GEN_AI_REQUEST_STREAM: True,
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 40,
        semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 16,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 5,
        semconv.HTTP_RESPONSE_STATUS_CODE: 200,
        semconv.WORKER_ID: "worker-0",
        semconv.TENANT_ID: "tenant-a",
        semconv.OUTPUT_CHUNKS: len(gaps_ns) + 1,
        **ExpHistogram.from_ns(gaps_ns).to_attributes(),
    }
    if ttft_s is not None:
        usual[semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = ttft_s
    usual |= {getattr(semconv, name): value for name, value in attributes.items()}
    return _span(number, "chat smollm2-135m", "server", started_ns, started_ns + e2e_ns, usual)


def attest_span(
    number: int,
    *,
    worker: str = "worker-0",
    at_ns: int = 1_000 * SECOND,
    tier: str = "affirming",
    **attributes: AttributeValue,
) -> SpanRecord:
    """An appraisal of one worker, that ended at ``at_ns``."""
    usual: dict[str, AttributeValue] = {
        semconv.WORKER_ID: worker,
        semconv.ATTESTATION_TIER: tier,
        semconv.ATTESTATION_POLICY: "production",
        semconv.ATTESTATION_NOT_AFTER_S: at_ns / SECOND + 600,
    }
    usual |= {getattr(semconv, name): value for name, value in attributes.items()}
    return _span(number, f"attest {worker}", "internal", at_ns - 20 * MS, at_ns, usual)


def _span(
    number: int,
    name: str,
    kind: str,
    started_ns: int,
    ended_ns: int,
    attributes: dict[str, AttributeValue],
) -> SpanRecord:
    return SpanRecord(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_id=None,
        name=name,
        kind=kind,
        started_ns=started_ns,
        ended_ns=ended_ns,
        status="unset",
        service=semconv.SERVICE_GATEWAY,
        instance="gateway-0",
        attributes=attributes,
    )
