"""What may a route use?  Everything the composition root built, in one frozen value."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from starlette.requests import Request

from gateway.auth import Authenticator, Principal
from gateway.drain import Drain
from gateway.observe import Tracing
from gateway.problems import GatewayError
from gateway.quotas import Quotas
from gateway.relay import Relay
from gateway.worker.attester import Attester
from gateway.workers import WorkerDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The gateway's parts. `attester` is None when this machine has no acceptable TEE."""

    authenticator: Authenticator = field(repr=False)
    directory: WorkerDirectory
    relay: Relay
    quotas: Quotas
    tracing: Tracing
    drain: Drain
    attester: Attester | None
    utc_now: Callable[[], datetime]
    new_request_id: Callable[[], str]


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def authenticated(request: Request) -> Principal:
    """Raises: GatewayError `invalid_api_key`."""
    return await services_of(request).authenticator.authenticate(
        request.headers.get("authorization")
    )


def require_not_draining(services: Services) -> None:
    """Raises: GatewayError `server_stopping`."""
    if services.drain.has_begun:
        raise GatewayError("server_stopping", "The gateway is stopping.")
