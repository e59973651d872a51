"""Does decoding take what is valid, and nothing that is not allowed?"""

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry import semconv
from telemetry.otlp import MalformedExport, decode_export

CANARY = "canary-7f3a91"


def export(**fields: Any) -> ExportTraceServiceRequest:
    """An export of one valid span, with fields of the span overridden."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    _attribute(group.resource.attributes, "service.name", "starshade-gateway")
    _attribute(group.resource.attributes, "host.name", CANARY)
    span = group.scope_spans.add().spans.add()
    usual = {
        "trace_id": bytes(15) + b"\x01",
        "span_id": bytes(7) + b"\x01",
        "name": "chat m",
        "kind": 2,
        "start_time_unix_nano": 10,
        "end_time_unix_nano": 30,
    }
    for name, value in (usual | fields).items():
        setattr(span, name, value)
    return request


def _attribute(attributes: Any, key: str, value: str) -> None:
    item = attributes.add()
    item.key = key
    item.value.string_value = value


def test_allowed_facts_come_through_and_the_canary_does_not() -> None:
    request = export(trace_state=f"a={CANARY}")
    span = request.resource_spans[0].scope_spans[0].spans[0]
    _attribute(span.attributes, "gen_ai.input.messages", CANARY)
    _attribute(span.attributes, semconv.REQUEST_ID, "req-1")
    span.attributes.add(key=semconv.HTTP_ROUTE).value.kvlist_value.values.add(key=CANARY)
    nested = span.attributes.add(key=semconv.GEN_AI_RESPONSE_FINISH_REASONS).value.array_value
    nested.values.add().array_value.values.add().string_value = CANARY
    span.events.add(name=CANARY)
    _attribute(span.links.add(trace_id=bytes(16), span_id=bytes(8)).attributes, "x", CANARY)
    span.status.code = 2
    span.status.message = CANARY
    request.resource_spans[0].scope_spans[0].scope.name = CANARY

    decoded = decode_export(request.SerializeToString())
    (record,) = decoded.spans
    assert CANARY not in repr(decoded)
    assert record.attributes == {semconv.REQUEST_ID: "req-1"}
    assert decoded.num_dropped_attributes == 3
    assert (record.name, record.kind, record.status) == ("chat m", "server", "error")
    assert (record.service, record.instance) == ("starshade-gateway", None)
    assert (record.started_ns, record.ended_ns) == (10, 30)


@pytest.mark.parametrize(
    "fields",
    [
        {"trace_id": b""},
        {"trace_id": bytes(16)},
        {"trace_id": b"\x01" * 15},
        {"span_id": bytes(8)},
        {"span_id": b"\x01" * 9},
        {"parent_span_id": b"\x01"},
        {"start_time_unix_nano": 0},
        {"start_time_unix_nano": 31},
        {"end_time_unix_nano": 2**64 - 1},
    ],
)
def test_spans_without_valid_ids_and_times_are_rejected(fields: dict[str, Any]) -> None:
    decoded = decode_export(export(**fields).SerializeToString())
    assert decoded.spans == []
    assert decoded.num_rejected_spans == 1


def test_too_many_attributes_reject_the_span() -> None:
    request = export()
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for number in range(129):
        _attribute(span.attributes, f"k{number}", "v")
    assert decode_export(request.SerializeToString()).num_rejected_spans == 1


@pytest.mark.parametrize("data", [b"not protobuf", b"\x0a\xff\xff\xff\xff\x0f"])
def test_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedExport):
        decode_export(data)
