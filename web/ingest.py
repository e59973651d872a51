"""POST /v1/traces: how do spans come in, from senders that may be wrong, large or too many?

[OTLP 1.5, OTLP/HTTP]: binary protobuf, gzip allowed; 200 with a partial-success message, 503 with
Retry-After when the queue is full.  An error's body is a google.rpc.Status, as OTLP asks.
"""

import zlib
from typing import Final

from fastapi import APIRouter, Request
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from telemetry.db.writer import TelemetryWriter
from telemetry.otlp import MalformedExport, TooManySpans, decode_export

PROTOBUF: Final = "application/x-protobuf"
MAX_BODY_BYTES: Final = 4 << 20  # as sent
MAX_INFLATED_BYTES: Final = 8 << 20
RETRY_AFTER_S: Final = 5

router = APIRouter()


class Refused(Exception):
    """An export request that is not taken."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@router.post("/v1/traces", include_in_schema=False)
async def export_traces(request: Request) -> Response:
    """Take one ExportTraceServiceRequest."""
    writer: TelemetryWriter = request.app.state.writer
    try:
        body = await _read_body(request)
        now_ns: int = request.app.state.clock_ns()
        answer = await run_in_threadpool(_take, writer, body, _is_gzip(request), now_ns)
    except Refused as refusal:
        headers = {"retry-after": str(RETRY_AFTER_S)} if refusal.status == 503 else None
        status = Status(message=refusal.code).SerializeToString()
        return Response(status, refusal.status, headers=headers, media_type=PROTOBUF)
    return Response(answer.SerializeToString(), media_type=PROTOBUF)


def inflate(data: bytes, *, max_bytes: int = MAX_INFLATED_BYTES) -> bytes:
    """Decompress one gzip stream.

    Raises: Refused, 413 when it grows beyond ``max_bytes``, 400 when it is no whole gzip stream.
    """
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = inflater.decompress(data, max_bytes + 1)
    except zlib.error as err:
        raise Refused(400, "malformed_gzip") from err
    if len(plain) > max_bytes:
        raise Refused(413, "body_too_large")
    if not inflater.eof or inflater.unused_data:
        raise Refused(400, "malformed_gzip")
    return plain


def _take(
    writer: TelemetryWriter, body: bytes, is_gzip: bool, now_ns: int
) -> ExportTraceServiceResponse:
    try:
        export = decode_export(inflate(body) if is_gzip else body, now_ns=now_ns)
    except TooManySpans as err:
        raise Refused(413, "too_many_spans") from err
    except MalformedExport as err:
        raise Refused(400, "malformed_protobuf") from err
    if not writer.submit_spans(export.spans):
        raise Refused(503, "queue_full")
    writer.count_dropped(export.num_rejected_spans)
    answer = ExportTraceServiceResponse()
    if export.num_rejected_spans:
        answer.partial_success.rejected_spans = export.num_rejected_spans
        answer.partial_success.error_message = (
            "spans without valid ids and times, or too large, were rejected"
        )
    return answer


async def _read_body(request: Request) -> bytes:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != PROTOBUF:
        raise Refused(415, "unsupported_media_type")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Refused(413, "body_too_large")
    return bytes(body)


def _is_gzip(request: Request) -> bool:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "identity"):
        raise Refused(415, "unsupported_content_encoding")
    return encoding == "gzip"
