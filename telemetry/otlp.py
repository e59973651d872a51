"""Which spans does an OTLP export request hold, as far as we accept them?

[OTLP 1.5, ExportTraceServiceRequest].  Events, links, status texts and trace state are not read
at all; attributes pass the same allow-list that honest senders already applied.  Spans are counted,
measured and parsed one by one: a request of empty parts must not cost what a full one does.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from telemetry import semconv
from telemetry.db.records import MAX_INT64, SpanRecord
from telemetry.db.retention import SPAN_RETENTION_S
from telemetry.metrics import NS_PER_S
from telemetry.redact import (
    ALLOWED_RESOURCE,
    MAX_SEQUENCE,
    AttributeValue,
    allowed_attributes,
    allowed_span_name,
)
from telemetry.wire import MalformedMessage, fields

MAX_ATTRIBUTES: Final = 128  # the SDK's own default limit per span
# Resources, scopes, spans and what stands beside them in one request; the SDK sends 512 spans, a
# collector 8,192.
MAX_PARTS: Final = 20_000
MAX_SPAN_BYTES: Final = 64 * 1024  # of one span or resource; our longest has 2 KiB
MAX_AHEAD_S: Final = 300  # how far a sender's clock may be ahead of ours
MAX_AGE_S: Final = SPAN_RETENTION_S  # what is older would be deleted at once
# Field numbers of ExportTraceServiceRequest, ResourceSpans and ScopeSpans.
_RESOURCE_SPANS, _RESOURCE, _SCOPE_SPANS, _SPANS = 1, 1, 2, 2
_KINDS: Final = {
    Span.SPAN_KIND_INTERNAL: "internal",
    Span.SPAN_KIND_SERVER: "server",
    Span.SPAN_KIND_CLIENT: "client",
    Span.SPAN_KIND_PRODUCER: "producer",
    Span.SPAN_KIND_CONSUMER: "consumer",
}
_STATUSES: Final = {Status.STATUS_CODE_OK: "ok", Status.STATUS_CODE_ERROR: "error"}


class MalformedExport(ValueError):
    """The bytes are not an ExportTraceServiceRequest."""


class TooManySpans(ValueError):
    """The request has more spans, or groups of them, than one request may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedExport:
    """The spans we take, and what was left behind."""

    spans: list[SpanRecord]
    num_rejected_spans: int
    num_dropped_attributes: int


def decode_export(data: bytes, *, now_ns: int) -> DecodedExport:
    """Parse one export request; ``now_ns`` is unix ns.

    A span without valid ids, or with times that are none or lie outside MAX_AGE_S before and
    MAX_AHEAD_S after ``now_ns``, is rejected and counted; the others are taken.
    Raises: MalformedExport when the bytes are no protobuf message of that type, TooManySpans.
    """
    spans: list[SpanRecord] = []
    num_rejected = num_dropped = 0
    try:
        for resource, raw_spans in _groups(memoryview(data)):
            for raw in raw_spans:
                span = Span.FromString(bytes(raw)) if len(raw) <= MAX_SPAN_BYTES else None
                if span is None or resource is None or not _is_valid(span, now_ns):
                    num_rejected += 1
                    continue
                attributes, dropped = allowed_attributes(_plain(span.attributes))
                num_dropped += dropped
                spans.append(_record(span, resource, attributes))
    except (DecodeError, MalformedMessage) as err:
        raise MalformedExport("want an ExportTraceServiceRequest in protobuf") from err
    return DecodedExport(
        spans=spans, num_rejected_spans=num_rejected, num_dropped_attributes=num_dropped
    )


def _groups(
    data: memoryview,
) -> list[tuple[Mapping[str, AttributeValue] | None, list[memoryview]]]:
    """Spans, not yet parsed, by resource; a resource that is too large is None.

    Raises: TooManySpans, MalformedMessage, DecodeError.
    """
    groups: list[tuple[Mapping[str, AttributeValue] | None, list[memoryview]]] = []
    parts = itertools.count(1)
    for number, resource_spans in _counted(data, parts):
        resource, spans = b"", list[memoryview]()
        if number != _RESOURCE_SPANS:
            continue
        for field, part in _counted(resource_spans, parts):
            if field == _RESOURCE:
                resource += part  # parts of one message merge when they are joined
            elif field == _SCOPE_SPANS:
                spans += (span for kind, span in _counted(part, parts) if kind == _SPANS)
        groups.append((_resource(resource), spans))
    return groups


def _counted(data: memoryview, parts: Iterator[int]) -> Iterator[tuple[int, memoryview]]:
    for field in fields(data):
        if next(parts) > MAX_PARTS:
            raise TooManySpans(f"want at most {MAX_PARTS} spans and groups of them")
        yield field


def _resource(data: bytes) -> Mapping[str, AttributeValue] | None:
    if len(data) > MAX_SPAN_BYTES:
        return None
    attributes = Resource.FromString(data).attributes
    if len(attributes) > MAX_ATTRIBUTES:
        return None
    return allowed_attributes(_plain(attributes), ALLOWED_RESOURCE)[0]


def _record(
    span: Span, resource: Mapping[str, AttributeValue], attributes: Mapping[str, AttributeValue]
) -> SpanRecord:
    service, instance = (
        resource.get(semconv.SERVICE_NAME),
        resource.get(semconv.SERVICE_INSTANCE_ID),
    )
    return SpanRecord(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_id=span.parent_span_id or None,
        name=allowed_span_name(span.name),
        kind=_KINDS.get(span.kind, "unspecified"),
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        status=_STATUSES.get(span.status.code, "unset"),
        service=service if isinstance(service, str) else None,
        instance=instance if isinstance(instance, str) else None,
        attributes=attributes,
    )


def _is_valid(span: Span, now_ns: int) -> bool:
    earliest_ns = max(1, now_ns - MAX_AGE_S * NS_PER_S)
    latest_ns = min(MAX_INT64, now_ns + MAX_AHEAD_S * NS_PER_S)
    return (
        len(span.trace_id) == 16
        and any(span.trace_id)
        and len(span.span_id) == 8
        and any(span.span_id)
        and len(span.parent_span_id) in (0, 8)
        and earliest_ns <= span.start_time_unix_nano <= span.end_time_unix_nano <= latest_ns
        and len(span.attributes) <= MAX_ATTRIBUTES
    )


def _plain(attributes: Iterable[KeyValue]) -> dict[str, object]:
    return {item.key: _value(item.value) for item in attributes}


def _value(value: AnyValue) -> object:
    """The Python value of a scalar or of an array of scalars; None of anything else."""
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "array_value" if len(value.array_value.values) <= MAX_SEQUENCE:
            items = value.array_value.values
            return [None if item.HasField("array_value") else _value(item) for item in items]
        case _:
            return None
