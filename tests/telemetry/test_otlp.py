"""Does decoding take what is valid, and nothing that is not allowed?"""

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry import semconv
from telemetry.otlp import (
    MAX_AGE_S,
    MAX_AHEAD_S,
    MAX_PARTS,
    MAX_SPAN_BYTES,
    MalformedExport,
    TooManySpans,
    decode_export,
)
from tests.telemetry.spans import SECOND

CANARY = "canary-7f3a91"
NOW_NS = 30


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

    decoded = decode_export(request.SerializeToString(), now_ns=NOW_NS)
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
    decoded = decode_export(export(**fields).SerializeToString(), now_ns=NOW_NS)
    assert decoded.spans == []
    assert decoded.num_rejected_spans == 1


def test_too_many_attributes_reject_the_span() -> None:
    request = export()
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for number in range(129):
        _attribute(span.attributes, f"k{number}", "v")
    assert decode_export(request.SerializeToString(), now_ns=NOW_NS).num_rejected_spans == 1


@pytest.mark.parametrize(
    "data",
    [
        b"not protobuf",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x00",  # field 0
        b"\x0b",  # a group
        b"\x80" * 11,
        b"\x08",
        b"\x09\x00",
        b"\x0a\x02\x12\x01",
        b"\x0a\x05\x12\x03\x12\x01\xff",
    ],
)
def test_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedExport):
        decode_export(data, now_ns=NOW_NS)


@pytest.mark.parametrize(
    ("started_s", "ended_s", "is_taken"),
    [
        (-1, 0, True),
        (-MAX_AGE_S, 0, True),
        (-MAX_AGE_S - 1, 0, False),
        (0, MAX_AHEAD_S, True),
        (0, MAX_AHEAD_S + 1, False),
        (MAX_AHEAD_S + 1, MAX_AHEAD_S + 1, False),
    ],
)
def test_spans_of_another_time_are_rejected(started_s: int, ended_s: int, is_taken: bool) -> None:
    now_ns = 1_796_000_000 * SECOND
    times = {
        "start_time_unix_nano": now_ns + started_s * SECOND,
        "end_time_unix_nano": now_ns + ended_s * SECOND,
    }
    decoded = decode_export(export(**times).SerializeToString(), now_ns=now_ns)
    assert (len(decoded.spans), decoded.num_rejected_spans) == (is_taken, not is_taken)


def repeated(tag: bytes, count: int, *outer: bytes) -> bytes:
    """`count` empty messages of a field, inside the fields `outer`, the outermost last."""
    data = (tag + b"\x00") * count
    for field in outer:
        data = field + _varint(len(data)) + data
    return data


def _varint(value: int) -> bytes:
    head = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return head if value <= 0x7F else head + _varint(value >> 7)


@pytest.mark.parametrize(
    "data",
    [
        repeated(b"\x0a", MAX_PARTS + 1),
        repeated(b"\x12", MAX_PARTS, b"\x0a"),
        repeated(b"\x12", MAX_PARTS - 1, b"\x12", b"\x0a"),
        repeated(b"\x10", MAX_PARTS + 1),
    ],
    ids=["resources", "scopes", "spans", "numbers"],
)
def test_too_many_parts_are_refused(data: bytes) -> None:
    with pytest.raises(TooManySpans):
        decode_export(data, now_ns=NOW_NS)


def test_as_many_parts_as_allowed_are_taken() -> None:
    assert decode_export(repeated(b"\x0a", MAX_PARTS), now_ns=NOW_NS).spans == []
    data = repeated(b"\x12", MAX_PARTS - 2, b"\x12", b"\x0a")
    assert decode_export(data, now_ns=NOW_NS).num_rejected_spans == MAX_PARTS - 2


def test_a_span_or_resource_of_empty_parts_is_rejected_unparsed() -> None:
    request = export().SerializeToString()
    empty_events = repeated(b"\x5a", MAX_SPAN_BYTES, b"\x12", b"\x12", b"\x0a")
    decoded = decode_export(request + empty_events, now_ns=NOW_NS)
    assert (len(decoded.spans), decoded.num_rejected_spans) == (1, 1)
    large = export()
    _attribute(large.resource_spans[0].resource.attributes, "x", "x" * MAX_SPAN_BYTES)
    many = export()
    for number in range(128):
        _attribute(many.resource_spans[0].resource.attributes, f"k{number}", "v")
    for refused in (large, many):
        assert decode_export(refused.SerializeToString(), now_ns=NOW_NS).num_rejected_spans == 1


def test_order_and_splitting_of_fields_do_not_matter() -> None:
    """Protobuf allows any order of fields, and a message in parts that merge."""
    (group,) = export().resource_spans
    resource, scope = group.resource.SerializeToString(), group.scope_spans[0].SerializeToString()
    parts = b"\x12" + _varint(len(scope)) + scope
    parts += b"\x0a" + _varint(len(resource)) + resource + b"\x0a\x00"
    (record,) = decode_export(b"\x0a" + _varint(len(parts)) + parts, now_ns=NOW_NS).spans
    assert record.service == "starshade-gateway"
