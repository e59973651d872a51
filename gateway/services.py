"""What may a route use?  Everything the composition root built, in one frozen value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from attestation.sampling import sampling_digest
from gateway.audit import AuditLog
from gateway.auth import Authenticator, Principal
from gateway.counts import RequestCounts
from gateway.doors.edge import EdgeDoors
from gateway.doors.inner import note_principal
from gateway.drain import Drain
from gateway.limits import take_place
from gateway.observe import Tracing
from gateway.problems import RECEIPT_ID, GatewayError
from gateway.quotas import Quotas
from gateway.receipts import RECEIPT, OpenReceipt, ReceiptBook, unreadable
from gateway.registration import WorkerRegistry
from gateway.relay import Relay
from gateway.worker.attester import Attester
from gateway.workers import WorkerDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The gateway's parts. `attester` is None when this machine has no acceptable TEE."""

    authenticator: Authenticator = field(repr=False)
    directory: WorkerDirectory
    registry: WorkerRegistry
    relay: Relay
    receipts: ReceiptBook
    audit: AuditLog
    quotas: Quotas
    counts: RequestCounts
    tracing: Tracing
    drain: Drain
    attester: Attester | None
    doors: EdgeDoors = field(repr=False)
    utc_now: Callable[[], datetime]
    new_request_id: Callable[[], str]


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def authenticated(request: Request) -> Principal:
    """Who asks; the request has a place from here on, and on a path that has them a receipt.

    Two credentials are none: what is before us may have looked at the other one.

    Raises: GatewayError as `Authenticator.authenticate`; `overloaded`; `receipt_unavailable`.
    """
    services = services_of(request)
    given = request.headers.getlist("authorization")
    authorization = given[0] if len(given) == 1 else None
    try:
        principal = await services.authenticator.authenticate(authorization)
    except SQLAlchemyError as err:
        raise unreadable(err) from err
    note_principal(request.scope)
    take_place(request.scope)
    receipt = open_receipt(request)
    if receipt is not None:
        services.receipts.own(receipt, principal)
        request.scope[RECEIPT_ID] = receipt.id
    return principal


def open_receipt(request: Request) -> OpenReceipt | None:
    """The one of this request, on a path that has them."""
    receipt: OpenReceipt | None = request.scope.get(RECEIPT)
    return receipt


def note_sampling(request: Request, asked: Mapping[str, Any]) -> None:
    """For the receipt; `asked` was found to be a valid request."""
    receipt = open_receipt(request)
    if receipt is not None:
        receipt.sampling_sha256 = sampling_digest(asked)


def require_not_draining(services: Services) -> None:
    """Raises: GatewayError `server_stopping`."""
    if services.drain.has_begun:
        raise GatewayError("server_stopping", "The gateway is stopping.")
