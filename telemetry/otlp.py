"""Which spans does an OTLP export request hold, as far as we accept them?

[OTLP 1.5, ExportTraceServiceRequest].  Events, links, status texts and trace state are not read
at all; attributes pass the same allow-list that honest senders already applied.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from telemetry import semconv
from telemetry.db.records import MAX_INT64, SpanRecord
from telemetry.redact import (
    ALLOWED_RESOURCE,
    MAX_SEQUENCE,
    AttributeValue,
    allowed_attributes,
    allowed_span_name,
)

MAX_ATTRIBUTES: Final = 128  # the SDK's own default limit per span
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedExport:
    """The spans we take, and what was left behind."""

    spans: list[SpanRecord]
    num_rejected_spans: int
    num_dropped_attributes: int


def decode_export(data: bytes) -> DecodedExport:
    """Parse one export request.

    A span without valid ids and times is rejected and counted; the others are taken.
    Raises: MalformedExport when the bytes are no protobuf message of that type.
    """
    try:
        request = ExportTraceServiceRequest.FromString(data)
    except DecodeError as err:
        raise MalformedExport("want an ExportTraceServiceRequest in protobuf") from err
    spans: list[SpanRecord] = []
    num_rejected = num_dropped = 0
    for resource_spans in request.resource_spans:
        resource, _ = allowed_attributes(
            _plain(resource_spans.resource.attributes), ALLOWED_RESOURCE
        )
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if not _is_valid(span):
                    num_rejected += 1
                    continue
                attributes, dropped = allowed_attributes(_plain(span.attributes))
                num_dropped += dropped
                spans.append(_record(span, resource, attributes))
    return DecodedExport(
        spans=spans, num_rejected_spans=num_rejected, num_dropped_attributes=num_dropped
    )


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


def _is_valid(span: Span) -> bool:
    return (
        len(span.trace_id) == 16
        and any(span.trace_id)
        and len(span.span_id) == 8
        and any(span.span_id)
        and len(span.parent_span_id) in (0, 8)
        and 0 < span.start_time_unix_nano <= span.end_time_unix_nano <= MAX_INT64
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
