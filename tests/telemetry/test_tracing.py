"""Do spans leave redacted, counted, and without holding anything up?"""

import threading
import time
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from telemetry import semconv
from telemetry.tracing import (
    AllowListExporter,
    CountingBatchProcessor,
    SpanCounts,
    build_provider,
)
from tests.support.patience import PATIENCE_S

CANARY = "canary-7f3a91"


def test_exported_span_holds_only_what_is_allowed() -> None:
    memory = InMemorySpanExporter()
    provider = build_provider(
        semconv.SERVICE_GATEWAY, endpoint=None, instance_id="gateway-0", exporter=memory
    )
    tracer = provider.get_tracer("gateway")
    linked = SpanContext(1, 2, True, TraceFlags(1), TraceState([("canary", CANARY)]))
    span = tracer.start_span(
        f"chat {CANARY} {CANARY}",
        kind=SpanKind.SERVER,
        attributes={"gen_ai.input.messages": CANARY, semconv.REQUEST_ID: "req-1"},
        links=[Link(linked, {"canary": CANARY})],
    )
    span.add_event(CANARY, {"canary": CANARY})
    span.record_exception(RuntimeError(CANARY))
    span.set_status(StatusCode.ERROR, CANARY)
    span.end()
    provider.shutdown()

    (sent,) = memory.get_finished_spans()
    assert CANARY not in sent.to_json()
    assert CANARY not in str(sent.context) + str(sent.links) + str(sent.events)
    assert sent.name == "redacted"
    assert sent.kind is SpanKind.SERVER
    assert sent.status.status_code is StatusCode.ERROR
    assert dict(sent.attributes or {}) == {semconv.REQUEST_ID: "req-1"}
    assert dict(sent.resource.attributes) == {
        semconv.SERVICE_NAME: semconv.SERVICE_GATEWAY,
        semconv.SERVICE_INSTANCE_ID: "gateway-0",
    }
    assert provider.counts() == SpanCounts(
        exported=1, dropped_queue_full=0, dropped_export_failed=0, dropped_attributes=1
    )


class Blocked(SpanExporter):
    """Takes one batch and holds it until released."""

    def __init__(self) -> None:
        self.is_open = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_open.wait(PATIENCE_S)
        return SpanExportResult.SUCCESS


def test_full_queue_drops_and_counts_every_span() -> None:
    blocked = Blocked()
    processor = CountingBatchProcessor(
        AllowListExporter(blocked), queue_spans=50, batch_spans=10, schedule_delay_ms=60_000
    )
    provider = build_provider("p", endpoint=None, instance_id="p")
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("t")
    for _ in range(500):
        tracer.start_span("seal").end()
    blocked.is_open.set()
    provider.shutdown()
    counts = processor.counts()
    assert counts.dropped_queue_full >= 500 - 50 - 50
    assert counts.exported + counts.dropped_queue_full == 500


def test_dead_observatory_costs_neither_requests_nor_the_exit() -> None:
    provider = build_provider("p", endpoint="http://127.0.0.1:9/v1/traces", instance_id="p")
    tracer = provider.get_tracer("t")
    began = time.perf_counter()
    for _ in range(3_000):
        tracer.start_span("seal").end()
    made = time.perf_counter()
    assert made - began < 8  # the exporter's own timeout is 2 s a batch: to wait for five takes 10
    provider.shutdown()
    assert time.perf_counter() - made < 8  # six batches would take 12 s
    counts = provider.counts()
    assert counts.exported == 0
    assert counts.dropped_export_failed + counts.dropped_queue_full == 3_000


def test_without_endpoint_nothing_is_exported() -> None:
    provider = build_provider("p", endpoint=None, instance_id="p")
    provider.get_tracer("t").start_span("seal").end()
    provider.shutdown()
    assert provider.counts().exported == 0


class Broken(SpanExporter):
    """Raises, as no exporter should."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("cannot")


def test_spans_that_an_exporter_chokes_on_are_counted() -> None:
    provider = build_provider("p", endpoint=None, instance_id="p", exporter=Broken())
    provider.get_tracer("t").start_span("seal").end()
    provider.shutdown()
    assert provider.counts().dropped_export_failed == 1
