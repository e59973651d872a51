"""What is known of a request, an attestation or a generation?  Facts, of which others make spans.

Filled in where things happen; `gateway.observe` turns them into spans, receipts and counts read
them.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from attestation.channel import Lease
from attestation.model import AttestationResult
from attestation.receipt import Revocation
from gateway.problems import problem_of
from runtime import SequenceTiming
from telemetry import semconv
from telemetry.timeline import RequestTimeline


class Hop(Protocol):
    """The way to one worker under one lease."""

    @property
    def revocation(self) -> Revocation | None:
        """The negative verdict that ended the lease, if one did."""
        ...


@dataclass(slots=True, kw_only=True)
class RequestFacts:
    """What is known of one request, filled in as it goes; mutable while it runs."""

    request_id: str
    timeline: RequestTimeline
    route: str
    operation: str = semconv.OPERATION_CHAT
    model: str | None = None
    is_streamed: bool | None = None
    max_tokens: int | None = None
    tenant: str | None = None
    worker_id: str | None = None
    lease: Lease | None = None  # what the request was sealed under, last
    weights_sha256: str | None = None
    hop: "Hop | None" = None  # to the worker, last
    sealing_ns: tuple[int, int] | None = None  # monotonic, of the last attempt
    finish_reason: str | None = None
    has_answer: bool = False  # it began, at least
    has_usage: bool = False
    status: int = 200
    error_code: str | None = None

    def fail(self, code: str, *, status: int | None = None) -> None:
        """`status` is what the client saw, when the response had begun."""
        self.error_code = code
        self.status = problem_of(code).status if status is None else status


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestFacts:
    """One attempt to attest one worker; `result` is None when no Evidence arrived."""

    worker_id: str
    started_ns: int
    ended_ns: int
    error_code: str | None
    tee: str | None = None
    weights_sha256: str | None = None
    result: AttestationResult | None = None
    lease_not_after: datetime | None = None
    has_verdict: bool = True  # else the worker could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """How one generation went inside the worker; `timing` only when the engine finished it."""

    request_id: str
    traceparent: str | None
    arrived_ns: int
    ended_ns: int
    finish_reason: str | None
    error_code: str | None
    timing: SequenceTiming | None
