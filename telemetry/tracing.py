"""How do spans leave a process without slowing it, leaking from it, or vanishing uncounted?

A bounded queue, one background thread, a short timeout: a dead observatory costs spans, which are
counted, and never a request.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanContext, Status

from telemetry import semconv
from telemetry.redact import ALLOWED_RESOURCE, allowed_attributes, allowed_span_name

# Four times the spans of five seconds at 300 requests/s and five spans a request.
QUEUE_SPANS: Final = 32_768
BATCH_SPANS: Final = 512
SCHEDULE_DELAY_MS: Final = 1_000
EXPORT_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCounts:
    """What became of the spans of one process so far."""

    exported: int
    dropped_queue_full: int
    dropped_export_failed: int
    dropped_attributes: int


class AllowListExporter(SpanExporter):
    """Passes on to ``inner`` only what the allow-list admits; counts the rest.

    Events, links, status descriptions and trace state are dropped whole: exception texts and
    foreign words travel there.
    """

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._is_closing = False
        self._has_failed_closing = False
        self.num_taken = 0
        self.num_exported = 0
        self.num_failed = 0
        self.num_dropped_attributes = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export what is allowed; called by one thread at a time."""
        self.num_taken += len(spans)
        if self._has_failed_closing:  # nobody listens: do not hold up the exit
            self.num_failed += len(spans)
            return SpanExportResult.FAILURE
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export([self._redacted(span) for span in spans])
        finally:
            if result is SpanExportResult.SUCCESS:
                self.num_exported += len(spans)
            else:
                self.num_failed += len(spans)
                self._has_failed_closing = self._is_closing
        return result

    def begin_shutdown(self) -> None:
        """From here the first failed batch fails the rest at once."""
        self._is_closing = True

    def shutdown(self) -> None:
        """Close ``inner``."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush ``inner``."""
        return self._inner.force_flush(timeout_millis)

    def _redacted(self, span: ReadableSpan) -> ReadableSpan:
        attributes, num_dropped = allowed_attributes(span.attributes or {})
        resource, _ = allowed_attributes(span.resource.attributes, ALLOWED_RESOURCE)
        self.num_dropped_attributes += num_dropped
        return ReadableSpan(
            name=allowed_span_name(span.name),
            context=_without_trace_state(span.context),
            parent=_without_trace_state(span.parent),
            resource=Resource(resource),
            attributes=attributes,
            kind=span.kind,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )


class CountingBatchProcessor(BatchSpanProcessor):
    """A BatchSpanProcessor that refuses, and counts, what its queue cannot hold.

    The SDK's own queue silently pushes out the oldest span when it is full, so the bound is kept
    here and the queue below it has room to spare.
    """

    def __init__(
        self,
        exporter: AllowListExporter,
        *,
        queue_spans: int = QUEUE_SPANS,
        batch_spans: int = BATCH_SPANS,
        schedule_delay_ms: float = SCHEDULE_DELAY_MS,
    ) -> None:
        self._exporter = exporter
        self._queue_spans = queue_spans
        self._lock = threading.Lock()
        self._num_offered = 0
        self._num_dropped = 0
        super().__init__(
            exporter,
            max_queue_size=queue_spans + batch_spans,
            max_export_batch_size=batch_spans,
            schedule_delay_millis=schedule_delay_ms,
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span, or count it as dropped."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            if self._num_offered - self._exporter.num_taken >= self._queue_spans:
                self._num_dropped += 1
                return
            self._num_offered += 1
        super().on_end(span)

    def shutdown(self) -> None:
        """Export what is queued, then stop; quick when nobody listens."""
        self._exporter.begin_shutdown()
        super().shutdown()  # type: ignore[no-untyped-call]

    def counts(self) -> SpanCounts:
        """What became of the spans so far."""
        return SpanCounts(
            exported=self._exporter.num_exported,
            dropped_queue_full=self._num_dropped,
            dropped_export_failed=self._exporter.num_failed,
            dropped_attributes=self._exporter.num_dropped_attributes,
        )


class CountedTracerProvider(TracerProvider):
    """A TracerProvider that can say what became of its spans."""

    processor: CountingBatchProcessor | None = None

    def counts(self) -> SpanCounts:
        """What became of the spans so far; all zero when nothing is exported."""
        if self.processor is None:
            return SpanCounts(
                exported=0, dropped_queue_full=0, dropped_export_failed=0, dropped_attributes=0
            )
        return self.processor.counts()


def build_provider(
    service_name: str,
    *,
    endpoint: str | None,
    instance_id: str,
    exporter: SpanExporter | None = None,
) -> CountedTracerProvider:
    """The process's provider; ``shutdown()`` flushes it.

    ``endpoint`` is the whole OTLP/HTTP address ("http://127.0.0.1:8444/v1/traces"); None records
    nothing.  ``exporter`` takes its place in tests.  The allow-list stands before either.
    Every trace is sampled, whatever a client's ``traceparent`` asks for.
    """
    resource = Resource(
        {semconv.SERVICE_NAME: service_name, semconv.SERVICE_INSTANCE_ID: instance_id}
    )
    provider = CountedTracerProvider(
        sampler=ALWAYS_ON,
        resource=resource,
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_events=0, max_links=0),
    )
    if exporter is None and endpoint is not None:
        exporter = _otlp_exporter(endpoint)
    if exporter is not None:
        provider.processor = CountingBatchProcessor(AllowListExporter(exporter))
        provider.add_span_processor(provider.processor)
    return provider


def _otlp_exporter(endpoint: str) -> OTLPSpanExporter:
    session = requests.Session()
    session.trust_env = False  # no proxy, no .netrc: spans go where they were told
    return OTLPSpanExporter(
        endpoint=endpoint,
        timeout=EXPORT_TIMEOUT_S,
        compression=Compression.Gzip,
        session=session,
    )


def _without_trace_state(context: SpanContext | None) -> SpanContext | None:
    if context is None:
        return None
    return SpanContext(
        trace_id=context.trace_id,
        span_id=context.span_id,
        is_remote=context.is_remote,
        trace_flags=context.trace_flags,
    )
