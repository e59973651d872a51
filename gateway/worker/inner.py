"""What travels inside the sealed channel: one request opened, one response to seal.

Whatever answers these is an `InnerService`: the engine of this process, or an adapter to a server
that runs beside it.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gateway.faults import describe_fault
from gateway.problems import GatewayError, openai_body

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRequest:
    """What came sealed: already parsed, not yet interpreted."""

    method: str
    path: str
    body: bytes = field(repr=False)
    request_id: str
    cache_salt: bytes = field(repr=False)
    traceparent: str | None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerResponse:
    """What goes back sealed. Closing ``body`` cancels the work behind it."""

    status: int
    media_type: str
    body: AsyncGenerator[bytes, None] = field(repr=False)
    fields: tuple[tuple[str, str], ...] = ()  # besides its media type


class InnerService(Protocol):
    """Answers inner requests; each item of a body is sealed as one chunk."""

    async def respond(self, request: InnerRequest) -> InnerResponse:
        """Never raises for a bad request: errors are responses in OpenAI's shape."""
        ...


class Workload(Protocol):
    """What a worker computes now: it is let finish when the worker stops."""

    @property
    def num_open(self) -> int: ...

    async def drain(self, drain_s: float) -> None:
        """Refuses new requests, gives running ones so long, then ends them."""
        ...


def json_response(status: int, value: Mapping[str, Any]) -> InnerResponse:
    return InnerResponse(status=status, media_type=JSON, body=once(json.dumps(value).encode()))


def error_response(error: GatewayError) -> InnerResponse:
    return json_response(error.status, openai_body(error))


def fault_response(error: Exception) -> tuple[InnerResponse, str]:
    """An unexpected exception as a response, and its safe description for the log."""
    return error_response(GatewayError("internal_error", "The worker failed.")), describe_fault(
        error
    )


async def once(data: bytes) -> AsyncGenerator[bytes, None]:
    """A body of one piece."""
    yield data
