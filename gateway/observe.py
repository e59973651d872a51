"""How do facts become spans?  The only place in the inference processes that makes any.

Names and attributes are telemetry.semconv's. A span holds counts, times, ids and codes; nothing
that a client wrote except the model name, which the exporter's allow-list checks again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.facts import AttestFacts, EngineFacts, RequestFacts
from runtime import SequenceTiming
from telemetry import metrics, semconv
from telemetry.histogram import ExpHistogram
from telemetry.timeline import RequestTimeline

Attributes = dict[str, str | bool | int | float | tuple[int, ...] | tuple[str, ...]]

_SCOPE: Final = "starshade.gateway"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The process's two clocks: durations come from one, dates from the other."""

    monotonic_ns: Callable[[], int]
    unix_ns: Callable[[], int]


class RequestTrace:
    """The open root span of one request, and its facts."""

    def __init__(self, tracer: "Tracing", span: Span, facts: RequestFacts) -> None:
        self._tracing = tracer
        self._span = span
        self._at_end: list[Callable[[RequestFacts], None]] = []
        self.facts = facts

    @property
    def timeline(self) -> RequestTimeline:
        return self.facts.timeline

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span, Context()))
        return carrier["traceparent"]

    def at_end(self, callback: Callable[[RequestFacts], None]) -> None:
        """`callback` gets the facts once, when the request has ended in whatever way."""
        self._at_end.append(callback)

    def finish(self) -> None:
        """Writes the facts and closes the span; call it once, however the request ended."""
        self._tracing.close_request(self._span, self.facts)
        for callback in self._at_end:
            callback(self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Turns facts into spans of one process."""

    provider: TracerProvider
    clocks: Clocks
    instance_id: str
    _tracer: trace.Tracer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tracer", self.provider.get_tracer(_SCOPE))

    def start_request(
        self,
        *,
        request_id: str,
        traceparent: str | None,
        route: str,
        operation: str = semconv.OPERATION_CHAT,
    ) -> RequestTrace:
        """Opens the root span; a client's `traceparent` decides the trace it belongs to."""
        timeline = RequestTimeline(
            arrived_ns=self.clocks.monotonic_ns(), wall_anchor_ns=self.clocks.unix_ns()
        )
        span = self._tracer.start_span(
            operation,
            context=_parent(traceparent),
            kind=SpanKind.SERVER,
            start_time=timeline.wall_anchor_ns,
        )
        facts = RequestFacts(
            request_id=request_id, timeline=timeline, route=route, operation=operation
        )
        return RequestTrace(self, span, facts)

    def close_request(self, span: Span, facts: RequestFacts) -> None:
        timeline = facts.timeline
        timeline.mark_ended(self.clocks.monotonic_ns())
        if facts.model is not None:
            span.update_name(f"{facts.operation} {facts.model}")
        span.set_attributes(_request_attributes(facts))
        if facts.error_code is not None:
            span.set_status(Status(StatusCode.ERROR))
        offset_ns = timeline.wall_anchor_ns - timeline.arrived_ns
        context = trace.set_span_in_context(span, Context())
        if facts.sealing_ns is not None:
            self._child(semconv.SPAN_SEAL, context, offset_ns, *facts.sealing_ns)
        if timeline.first_byte_ns is not None and timeline.ended_ns is not None:
            self._child(
                semconv.SPAN_STREAM, context, offset_ns, timeline.first_byte_ns, timeline.ended_ns
            )
        span.end(offset_ns + (timeline.ended_ns or timeline.arrived_ns))

    def attested(self, facts: AttestFacts) -> None:
        """A root span of its own: a lease serves many requests, and belongs to none."""
        offset_ns = self._offset_ns()
        span = self._tracer.start_span(
            f"{semconv.SPAN_ATTEST} {facts.worker_id}",
            context=Context(),
            start_time=offset_ns + facts.started_ns,
            attributes=_attest_attributes(facts),
        )
        if facts.error_code is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(offset_ns + facts.ended_ns)

    def generated(self, facts: EngineFacts) -> None:
        offset_ns = self._offset_ns()
        span = self._tracer.start_span(
            semconv.SPAN_ENGINE,
            context=_parent(facts.traceparent),
            kind=SpanKind.SERVER,
            start_time=offset_ns + facts.arrived_ns,
            attributes=self._engine_attributes(facts),
        )
        if facts.error_code is not None:
            span.set_status(Status(StatusCode.ERROR))
        if facts.timing is not None:
            context = trace.set_span_in_context(span, Context())
            for name, started_ns, ended_ns in _stages(facts.timing):
                self._child(name, context, offset_ns, started_ns, ended_ns)
        span.end(offset_ns + facts.ended_ns)

    def _engine_attributes(self, facts: EngineFacts) -> Attributes:
        attributes: Attributes = {
            semconv.REQUEST_ID: facts.request_id,
            semconv.WORKER_ID: self.instance_id,
        }
        if facts.timing is not None:
            attributes |= _usage_attributes(
                prompt=facts.timing.prompt_tokens,
                cached=facts.timing.cached_tokens,
                output=facts.timing.output_tokens,
            )
        if facts.finish_reason is not None:
            attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = (facts.finish_reason,)
        if facts.error_code is not None:
            attributes[semconv.ERROR_TYPE] = facts.error_code
        return attributes

    def _child(
        self, name: str, context: Context, offset_ns: int, started_ns: int, ended_ns: int
    ) -> None:
        span = self._tracer.start_span(name, context=context, start_time=offset_ns + started_ns)
        span.end(offset_ns + ended_ns)

    def _offset_ns(self) -> int:
        return self.clocks.unix_ns() - self.clocks.monotonic_ns()


def _parent(traceparent: str | None) -> Context:
    if traceparent is None:
        return Context()
    return _PROPAGATOR.extract({"traceparent": traceparent}, Context())


def _request_attributes(facts: RequestFacts) -> Attributes:
    timeline = facts.timeline
    attributes: Attributes = {
        semconv.GEN_AI_OPERATION_NAME: facts.operation,
        semconv.GEN_AI_PROVIDER_NAME: semconv.PROVIDER_STARSHADE,
        semconv.HTTP_REQUEST_METHOD: "POST",
        semconv.HTTP_ROUTE: facts.route,
        semconv.HTTP_RESPONSE_STATUS_CODE: facts.status,
        semconv.REQUEST_ID: facts.request_id,
    }
    optional = {
        semconv.GEN_AI_REQUEST_MODEL: facts.model,
        semconv.GEN_AI_REQUEST_STREAM: facts.is_streamed,
        semconv.GEN_AI_REQUEST_MAX_TOKENS: facts.max_tokens,
        semconv.TENANT_ID: facts.tenant,
        semconv.WORKER_ID: facts.worker_id,
        semconv.LEASE_ID: None if facts.lease is None else facts.lease.verdict_id,
        semconv.ERROR_TYPE: facts.error_code,
    }
    attributes |= {name: value for name, value in optional.items() if value is not None}
    if facts.finish_reason is not None:
        attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = (facts.finish_reason,)
        if facts.model is not None:
            attributes[semconv.GEN_AI_RESPONSE_MODEL] = facts.model
    if facts.has_usage:
        attributes |= _usage_attributes(
            prompt=timeline.prompt_tokens or 0,
            cached=timeline.cached_tokens or 0,
            output=timeline.output_tokens,
        )
    if timeline.chunks:
        attributes |= _stream_attributes(timeline)
    return attributes


def _stream_attributes(timeline: RequestTimeline) -> Attributes:
    attributes: Attributes = {semconv.OUTPUT_CHUNKS: len(timeline.chunks)}
    ttft_s = metrics.ttft_s(timeline)
    if ttft_s is not None:
        attributes[semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = ttft_s
    attributes |= ExpHistogram.from_ns(metrics.itl_gaps_ns(timeline)).to_attributes()
    return attributes


def _usage_attributes(*, prompt: int, cached: int, output: int) -> Attributes:
    return {
        semconv.GEN_AI_USAGE_INPUT_TOKENS: prompt,
        semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: cached,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: output,
    }


def _attest_attributes(facts: AttestFacts) -> Attributes:
    attributes: Attributes = {semconv.WORKER_ID: facts.worker_id}
    optional = {
        semconv.ERROR_TYPE: facts.error_code,
        semconv.ATTESTATION_TEE: facts.tee,
        semconv.ATTESTATION_WEIGHTS_SHA256: facts.weights_sha256,
    }
    attributes |= {name: value for name, value in optional.items() if value is not None}
    result = facts.result
    if result is None:
        return attributes
    attributes |= {
        semconv.ATTESTATION_TIER: result.tier if facts.error_code is None else "contraindicated",
        semconv.ATTESTATION_SIMULATED: result.simulated,
        semconv.ATTESTATION_TRUST_ANCHOR: result.trust_anchor,
        semconv.ATTESTATION_POLICY: result.policy_name,
        semconv.ATTESTATION_POLICY_SHA256: result.policy_sha256,
        semconv.ATTESTATION_VERDICT_ID: result.verdict_id,
        semconv.ATTESTATION_NOT_AFTER_S: (facts.lease_not_after or result.not_after).timestamp(),
    }
    code = result.code or facts.error_code  # what is wrong with accepted Evidence is ours to say
    if code is not None:
        attributes[semconv.ATTESTATION_CODE] = code
    return attributes


def _stages(timing: SequenceTiming) -> list[tuple[str, int, int]]:
    scheduled_ns, token_ns = timing.first_scheduled_ns, timing.first_token_ns
    if scheduled_ns is None:
        return [(semconv.SPAN_QUEUE, timing.queued_ns, timing.finished_ns)]
    stages = [(semconv.SPAN_QUEUE, timing.queued_ns, scheduled_ns)]
    if token_ns is None:
        return [*stages, (semconv.SPAN_PREFILL, scheduled_ns, timing.finished_ns)]
    return [
        *stages,
        (semconv.SPAN_PREFILL, scheduled_ns, token_ns),
        (semconv.SPAN_DECODE, token_ns, timing.finished_ns),
    ]
