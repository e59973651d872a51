"""Does the ingest take honest spans, and refuse what is wrong, large or too much?"""

import gzip
import sqlite3
import zlib
from pathlib import Path

import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, set_span_in_context

from telemetry import metrics, semconv
from telemetry.db.writer import write_spans
from telemetry.histogram import ExpHistogram
from telemetry.timeline import RequestTimeline
from telemetry.tracing import build_provider
from tests.telemetry.spans import MS, SECOND, attest_span
from tests.web.conftest import NOW_NS
from tests.web.observatory import Observatory
from web.ingest import MAX_BODY_BYTES, MAX_INFLATED_BYTES

CANARY = "canary-7f3a91"
PROTOBUF = {"content-type": "application/x-protobuf"}


def export(
    num_spans: int = 1, *, first: int = 1, canary: bool = False, at_ns: int = NOW_NS
) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(first, first + num_spans):
        span = scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name="seal",
            start_time_unix_nano=at_ns,
            end_time_unix_nano=at_ns + MS,
        )
        if canary:
            span.name = f"seal {CANARY}"
            span.trace_state = f"a={CANARY}"
            span.attributes.add(key="gen_ai.prompt").value.string_value = CANARY
            span.attributes.add(key=CANARY).value.int_value = 1
            span.attributes.add(key=semconv.ERROR_TYPE).value.string_value = f"Got {CANARY}!"
            span.events.add(name=CANARY)
            span.status.message = CANARY
    data: bytes = request.SerializeToString()
    return data


def emit_request(provider: TracerProvider, timeline: RequestTimeline) -> None:
    """The root span as a gateway makes it from the facts of one request."""
    tracer = provider.get_tracer("gateway")
    root = tracer.start_span(
        "chat smollm2-135m", kind=SpanKind.SERVER, start_time=timeline.wall_anchor_ns
    )
    sealed = tracer.start_span(
        "seal", context=set_span_in_context(root), start_time=timeline.wall_anchor_ns
    )
    sealed.end(timeline.wall_anchor_ns + MS)
    first_s = metrics.ttft_s(timeline)
    end_s = metrics.e2e_s(timeline)
    assert first_s is not None
    assert end_s is not None
    gaps = ExpHistogram.from_ns(metrics.itl_gaps_ns(timeline))
    root.set_attributes(
        {
            semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_CHAT,
            semconv.GEN_AI_PROVIDER_NAME: semconv.PROVIDER_STARSHADE,
            semconv.GEN_AI_REQUEST_MODEL: "smollm2-135m",
            semconv.GEN_AI_REQUEST_STREAM: True,
            semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: first_s,
            semconv.GEN_AI_USAGE_INPUT_TOKENS: 40,
            semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 32,
            semconv.GEN_AI_USAGE_OUTPUT_TOKENS: timeline.output_tokens,
            semconv.HTTP_RESPONSE_STATUS_CODE: 200,
            semconv.WORKER_ID: "worker-0",
            "gen_ai.input.messages": CANARY,
            **gaps.to_attributes(),
        }
    )
    root.end(timeline.wall_anchor_ns + round(end_s * SECOND))


def test_a_real_exporters_spans_end_as_a_request_row(
    observatory: Observatory, tmp_path: Path
) -> None:
    timeline = RequestTimeline(arrived_ns=7, wall_anchor_ns=NOW_NS - 30 * SECOND)
    for at_ms in (100, 120, 160, 200):
        timeline.mark_chunk(7 + at_ms * MS)
    timeline.mark_ended(7 + 205 * MS)
    provider = build_provider(
        semconv.SERVICE_GATEWAY,
        endpoint=f"{observatory.base_url}/v1/traces",
        instance_id="gateway-0",
    )
    emit_request(provider, timeline)
    provider.shutdown()
    assert provider.counts().exported == 2
    assert provider.counts().dropped_attributes == 1
    assert observatory.writer.flush()

    (row,) = observatory.client.get("/api/requests").json()["requests"]
    assert row["ttft_s"] == pytest.approx(0.100)
    assert row["e2e_s"] == pytest.approx(0.205)
    assert row["tpot_s"] == pytest.approx(0.105 / 3)
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (40, 32, 4)
    totals = observatory.client.get("/api/overview?window_s=60").json()["totals"]
    assert totals["itl_s"]["count"] == 3
    assert totals["itl_s"]["p50"] == pytest.approx(0.040, rel=0.011)
    assert totals["tpot_s"]["p99"] == pytest.approx(0.105 / 3)
    assert CANARY.encode() not in database_bytes(tmp_path)


def test_a_canary_sent_raw_never_reaches_the_database(
    observatory: Observatory, tmp_path: Path
) -> None:
    answer = observatory.client.post("/v1/traces", content=export(canary=True), headers=PROTOBUF)
    assert answer.status_code == 200
    assert observatory.writer.flush()
    assert observatory.writer.counts().written == 1
    assert b"redacted" in database_bytes(tmp_path)  # the span is there, under no name of its own
    assert CANARY.encode() not in database_bytes(tmp_path)


def database_bytes(tmp_path: Path) -> bytes:
    """Every byte of the database and of its write-ahead log, in pages and in SQL."""
    folder = tmp_path / "state folder"
    raw = b"".join(path.read_bytes() for path in folder.iterdir())
    connection = sqlite3.connect(folder / "telemetry.db")
    raw += "\n".join(connection.iterdump()).encode()
    connection.close()
    return raw


def test_duplicates_are_idempotent_and_the_answer_is_protobuf(observatory: Observatory) -> None:
    body = gzip.compress(export(3))
    headers = PROTOBUF | {"content-encoding": "gzip"}
    for _ in range(2):
        answer = observatory.client.post("/v1/traces", content=body, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    assert observatory.writer.flush()
    with observatory.app.state.reader.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM span").scalar() == 3


def test_rejected_spans_are_reported_and_counted(observatory: Observatory) -> None:
    request = ExportTraceServiceRequest.FromString(export(2))
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b""
    answer = observatory.client.post(
        "/v1/traces", content=request.SerializeToString(), headers=PROTOBUF
    )
    response = ExportTraceServiceResponse.FromString(answer.content)
    assert response.partial_success.rejected_spans == 1
    assert observatory.client.get("/api/overview").json()["ingest"]["dropped"] == 1


def test_a_forged_appraisal_of_the_future_does_not_hide_the_real_one(
    observatory: Observatory,
) -> None:
    with observatory.app.state.writer._engine.begin() as connection:
        write_spans(connection, [attest_span(1, at_ns=NOW_NS, tier="contraindicated")])
    forged = ExportTraceServiceRequest.FromString(export(first=2))
    resource = forged.resource_spans[0].resource.attributes.add(key="service.name")
    resource.value.string_value = semconv.SERVICE_GATEWAY
    span = forged.resource_spans[0].scope_spans[0].spans[0]
    span.name = "attest worker-0"
    span.attributes.add(key=semconv.WORKER_ID).value.string_value = "worker-0"
    span.attributes.add(key=semconv.ATTESTATION_TIER).value.string_value = "affirming"
    for ahead_s in (60, 3600):
        span.span_id = ahead_s.to_bytes(8, "big")
        span.end_time_unix_nano = NOW_NS + ahead_s * SECOND
        body = forged.SerializeToString()
        observatory.client.post("/v1/traces", content=body, headers=PROTOBUF)
    assert observatory.writer.flush()
    assert (observatory.writer.counts().written, observatory.writer.counts().dropped) == (1, 1)
    (worker,) = observatory.client.get("/api/workers").json()["workers"]
    assert worker["tier"] == "contraindicated"


def test_full_queue_answers_503_and_counts(observatory: Observatory) -> None:
    body = gzip.compress(export(1_001))  # the fixture's queue holds 1,000
    answer = observatory.client.post(
        "/v1/traces", content=body, headers=PROTOBUF | {"content-encoding": "gzip"}
    )
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert Status.FromString(answer.content).message == "queue_full"
    ingest = observatory.client.get("/api/overview").json()["ingest"]
    assert (ingest["received"], ingest["dropped"]) == (1_001, 1_001)


def _bomb() -> bytes:
    return gzip.compress(bytes(MAX_INFLATED_BYTES + 1))


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{}", {"content-type": "application/json"}, 415, "unsupported_media_type"),
        (b"", {}, 415, "unsupported_media_type"),
        (b"x", PROTOBUF | {"content-encoding": "br"}, 415, "unsupported_content_encoding"),
        (b"no protobuf", PROTOBUF, 400, "malformed_protobuf"),
        (b"no gzip", PROTOBUF | {"content-encoding": "gzip"}, 400, "malformed_gzip"),
        (
            gzip.compress(export())[:-9],
            PROTOBUF | {"content-encoding": "gzip"},
            400,
            "malformed_gzip",
        ),
        (zlib.compress(b""), PROTOBUF | {"content-encoding": "gzip"}, 400, "malformed_gzip"),
        (bytes(MAX_BODY_BYTES + 1), PROTOBUF, 413, "body_too_large"),
        (b"\x0a\x00" * (MAX_BODY_BYTES // 2), PROTOBUF, 413, "too_many_spans"),
        (_bomb(), PROTOBUF | {"content-encoding": "gzip"}, 413, "body_too_large"),
    ],
)
def test_bad_exports_are_refused(
    observatory: Observatory, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answer = observatory.client.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == status
    assert Status.FromString(answer.content).message == code
    assert observatory.writer.counts().written == 0


def test_empty_export_is_fine(observatory: Observatory) -> None:
    assert observatory.client.post("/v1/traces", content=b"", headers=PROTOBUF).status_code == 200
