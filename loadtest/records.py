"""What happened to each request?  One JSON line a request, written as it ends."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from loadtest.sse import StreamFacts
from telemetry.timeline import RequestTimeline

# Codes that the generator itself gives; all others are the server's.
CONNECTION_FAILED = "connection_failed"
SKIPPED = "skipped_in_flight_limit"
UNFINISHED = "unfinished_at_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Times are Unix nanoseconds of one process's monotonic clock, anchored once."""

    seq: int
    is_warmup: bool
    intended_ns: int
    dispatched_ns: int | None = None
    first_byte_ns: int | None = None
    text_chunks_ns: tuple[int, ...] = ()
    ended_ns: int | None = None
    status: int | None = None
    error_code: str | None = None
    trace_id: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def is_ok(self) -> bool:
        return self.error_code is None and self.status == 200

    @property
    def first_token_ns(self) -> int | None:
        return self.text_chunks_ns[0] if self.text_chunks_ns else None

    @property
    def last_token_ns(self) -> int | None:
        return self.text_chunks_ns[-1] if self.text_chunks_ns else None

    def timeline(self) -> RequestTimeline:
        """The same marks as ``telemetry.metrics`` measures them, from the intended start."""
        return RequestTimeline(
            arrived_ns=self.intended_ns,
            wall_anchor_ns=self.intended_ns,
            dispatched_ns=self.dispatched_ns,
            first_byte_ns=self.first_byte_ns,
            chunks=[(at_ns, 1) for at_ns in self.text_chunks_ns],
            ended_ns=self.ended_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            reported_output_tokens=self.output_tokens,
        )

    def to_line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def record_of_stream(
    facts: StreamFacts,
    *,
    seq: int,
    is_warmup: bool,
    intended_ns: int,
    dispatched_ns: int,
    first_byte_ns: int | None,
    ended_ns: int,
    status: int,
    trace_id: str,
) -> RequestRecord:
    """A finished stream as a record; a non-200 answer keeps the server's error code."""
    error_code = facts.error_code
    if status != 200:
        error_code = f"http_{status}" if error_code in (None, "stream_truncated") else error_code
    return RequestRecord(
        seq=seq,
        is_warmup=is_warmup,
        intended_ns=intended_ns,
        dispatched_ns=dispatched_ns,
        first_byte_ns=first_byte_ns,
        text_chunks_ns=tuple(facts.text_chunks_ns),
        ended_ns=ended_ns,
        status=status,
        error_code=error_code,
        trace_id=trace_id,
        prompt_tokens=facts.prompt_tokens,
        output_tokens=facts.output_tokens,
        cached_tokens=facts.cached_tokens,
    )


def load_records(path: Path) -> list[RequestRecord]:
    """Records in the order of ``seq``; a last line cut by a crash is dropped."""
    names = {field.name for field in fields(RequestRecord)}
    records = []
    for line in path.read_text("utf-8").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        chunks = tuple(values.pop("text_chunks_ns", ()))
        known = {key: value for key, value in values.items() if key in names}
        records.append(RequestRecord(**known, text_chunks_ns=chunks))
    return sorted(records, key=lambda record: record.seq)
