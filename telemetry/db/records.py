"""What does the writer take, and which rows follow from it?  Pure: spans in, rows out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from telemetry import semconv
from telemetry.histogram import ExpHistogram
from telemetry.metrics import NS_PER_S
from telemetry.redact import AttributeValue

Row = dict[str, object]

MAX_INT64: Final = 2**63 - 1
_TOLD: Final = {
    semconv.OPERATION_CHAT,
    semconv.OPERATION_TEXT_COMPLETION,
    semconv.OPERATION_SEALED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """One finished span that has passed the allow-list; times are unix nanoseconds."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    name: str
    kind: str
    started_ns: int
    ended_ns: int
    status: str
    service: str | None
    instance: str | None
    attributes: Mapping[str, AttributeValue]


def span_row(span: SpanRecord) -> Row:
    """Row of the table ``span``."""
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "started_ns": span.started_ns,
        "duration_ns": span.ended_ns - span.started_ns,
        "status": span.status,
        "service": span.service,
        "instance": span.instance,
        "attributes": dict(span.attributes),
    }


def request_row(span: SpanRecord) -> Row | None:
    """Row of the table ``request``, when the span is a gateway's root span of a request for text,
    or of a sealed one that it passed on.

    TTFT, TPOT and gaps are of streamed requests only: a whole answer has no first token to see.
    """
    if span.service != semconv.SERVICE_GATEWAY or span.kind != "server":
        return None
    if span.attributes.get(semconv.GEN_AI_OPERATION_NAME) not in _TOLD:
        return None
    e2e_ns = span.ended_ns - span.started_ns
    stream = _bool(span, semconv.GEN_AI_REQUEST_STREAM)
    output_tokens = _count(span, semconv.GEN_AI_USAGE_OUTPUT_TOKENS)
    ttft_ns = _nanoseconds(span, semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK) if stream else None
    if ttft_ns is not None and ttft_ns > e2e_ns:
        ttft_ns = None
    tpot_ns = None
    if ttft_ns is not None and output_tokens is not None and output_tokens >= 2:
        tpot_ns = round((e2e_ns - ttft_ns) / (output_tokens - 1))
    gaps = _gaps(span) if stream else None
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "run_id": None,
        "started_ns": span.started_ns,
        "e2e_ns": e2e_ns,
        "ttft_ns": ttft_ns,
        "tpot_ns": tpot_ns,
        "itl_count": gaps.count if gaps else None,
        "itl_sum_ns": gaps.sum_ns if gaps else None,
        "itl_max_ns": gaps.max_ns if gaps else None,
        "gap_sketch": gaps.to_bytes() if gaps else None,
        "model": _text(span, semconv.GEN_AI_RESPONSE_MODEL)
        or _text(span, semconv.GEN_AI_REQUEST_MODEL),
        "tenant": _text(span, semconv.TENANT_ID),
        "worker": _text(span, semconv.WORKER_ID),
        "status": _count(span, semconv.HTTP_RESPONSE_STATUS_CODE),
        "error_type": _text(span, semconv.ERROR_TYPE),
        "stream": stream,
        "prompt_tokens": _count(span, semconv.GEN_AI_USAGE_INPUT_TOKENS),
        "cached_tokens": _count(span, semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS),
        "output_tokens": output_tokens,
        "chunks": _count(span, semconv.OUTPUT_CHUNKS),
    }


def attestation_row(span: SpanRecord) -> Row | None:
    """Row of the table ``attestation``, when the span names the worker and an outcome."""
    worker_id = _text(span, semconv.WORKER_ID)
    tier, code = _verdict(span)
    if span.service != semconv.SERVICE_GATEWAY or worker_id is None or tier is None:
        return None
    if span.name.split(" ")[0] != semconv.SPAN_ATTEST:
        return None
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "worker_id": worker_id,
        "tier": tier,
        "code": code,
        "tee": _text(span, semconv.ATTESTATION_TEE),
        "simulated": _bool(span, semconv.ATTESTATION_SIMULATED),
        "trust_anchor": _text(span, semconv.ATTESTATION_TRUST_ANCHOR),
        "policy": _text(span, semconv.ATTESTATION_POLICY),
        "policy_sha256": _text(span, semconv.ATTESTATION_POLICY_SHA256),
        "verdict_id": _text(span, semconv.ATTESTATION_VERDICT_ID),
        "weights_sha256": _text(span, semconv.ATTESTATION_WEIGHTS_SHA256),
        "appraised_ns": span.ended_ns,
        "not_after_ns": _nanoseconds(span, semconv.ATTESTATION_NOT_AFTER_S),
    }


def _verdict(span: SpanRecord) -> tuple[str | None, str | None]:
    """Tier and code; without a verdict, a failure to get any evidence is tier ``none``."""
    tier, error = _text(span, semconv.ATTESTATION_TIER), _text(span, semconv.ERROR_TYPE)
    if tier is None and error is not None:
        return "none", error
    return tier, _text(span, semconv.ATTESTATION_CODE)


def _gaps(span: SpanRecord) -> ExpHistogram | None:
    if semconv.ITL_COUNT not in span.attributes:
        return None
    try:
        gaps = ExpHistogram.from_attributes(span.attributes)
    except ValueError:  # a foreign or broken sender: the request counts, its gaps do not
        return None
    return gaps if gaps.count else None


def _text(span: SpanRecord, name: str) -> str | None:
    value = span.attributes.get(name)
    return value if isinstance(value, str) else None


def _bool(span: SpanRecord, name: str) -> bool | None:
    value = span.attributes.get(name)
    return value if isinstance(value, bool) else None


def _count(span: SpanRecord, name: str) -> int | None:
    value = span.attributes.get(name)
    return value if isinstance(value, int) and value >= 0 else None


def _nanoseconds(span: SpanRecord, name: str) -> int | None:
    value = span.attributes.get(name)
    if not isinstance(value, (int, float)) or not 0 <= value <= MAX_INT64 / NS_PER_S / 2:
        return None
    return round(value * NS_PER_S)
