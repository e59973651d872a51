"""What travels inside the sealed channel: one request opened, one response to seal.

Whatever answers these is an `InnerService`: the engine of this process, or an adapter to a server
that runs beside it.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from gateway.direct import DirectSlot
from gateway.endpoints import ENDPOINTS
from gateway.faults import describe_fault
from gateway.problems import GatewayError, openai_body

JSON: Final = "application/json"
MODELS_PATH: Final = "/v1/models"
_METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {MODELS_PATH: "GET", **{endpoint.path: "POST" for endpoint in ENDPOINTS}}
)


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
    slot: DirectSlot = field(default_factory=DirectSlot)  # for a body that can use it


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


def require_endpoint(request: InnerRequest) -> None:
    """Raises: GatewayError `unsupported_endpoint`, `method_not_allowed`."""
    method = _METHODS.get(request.path)
    if method is None:
        raise GatewayError("unsupported_endpoint", "There is no such endpoint.")
    if request.method != method:
        raise GatewayError("method_not_allowed", "This path has another method.")


def model_list(names: Sequence[str], *, created_s: int) -> Mapping[str, Any]:
    entries = [
        {"id": name, "object": "model", "created": created_s, "owned_by": "starshade"}
        for name in names
    ]
    return {"object": "list", "data": entries}


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
