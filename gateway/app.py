"""What does the gateway's ASGI app consist of?  Middleware, routes, lifespan; no logic.

`/v1/*` errors have OpenAI's shape, all others are problem details.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.doors.ehbp import EhbpDoor
from gateway.doors.terminate import TerminatingDoors
from gateway.drain import drain_on_signals
from gateway.edge import FaultBarrier, gateway_error_response, http_error_response
from gateway.endpoints import ENDPOINTS
from gateway.limits import BodyLimit, ClientPlaces, ConcurrencyLimit, RequestLimits
from gateway.problems import GatewayError
from gateway.receipts import OpenReceipt
from gateway.refusals import RefusalNotes
from gateway.reloading import reload_on_hangup
from gateway.routes import (
    description,
    evidence,
    health,
    inference,
    keys,
    models,
    operating,
    receipts,
)
from gateway.services import Services
from gateway.shaping import StreamShaper
from gateway.witness import Witness

ATTESTATION_PATH: Final = "/v1/attestation"
NODES_PATH: Final = "/v1/nodes"
OHTTP_PATH: Final = "/ohttp"
KEY_LIST_PATH: Final = "/.well-known/ohttp-gateway"  # [RFC 9540 sec. 4]
EHBP_KEY_PATH: Final = "/.well-known/hpke-keys"
TNG_PATH: Final = "/"
MAX_OPEN_EVIDENCE: Final = 4  # each takes a thread, of which the process has CPUs + 4

ROUTES = (
    *(Route(e.path, inference.serving(e), methods=["POST"]) for e in ENDPOINTS),
    Route("/v1/models", models.list_models),
    Route("/v1/models/{model:path}", models.get_model),
    Route(ATTESTATION_PATH, evidence.attestation),
    Route(NODES_PATH, evidence.nodes),
    Route("/v1/nodes/{id}/verdict", evidence.verdict),
    Route("/v1/receipts/{id}", receipts.get_receipt),
    Route(KEY_LIST_PATH, keys.key_list),
    Route(KEY_LIST_PATH, keys.encapsulated, methods=["POST"]),
    Route(OHTTP_PATH, keys.encapsulated, methods=["POST"]),
    Route(EHBP_KEY_PATH, keys.ehbp_key),
    Route(TNG_PATH, keys.tng, methods=["POST"]),
    Route("/metrics", operating.metrics),
    Route("/admin/tenants", operating.tenants),
    Route("/admin/workers", operating.add_worker, methods=["POST"]),
    Route("/admin/workers", operating.remove_worker, methods=["DELETE"]),
    Route("/openapi.json", description.openapi),
    Route("/healthz", health.healthz),
    Route("/readyz", health.readyz),
)


_KNOWN_PATHS: Final = frozenset(route.path for route in ROUTES)
_WITNESSED: Final = frozenset(endpoint.path for endpoint in ENDPOINTS)


class GatewayApp:
    """The gateway's ASGI app. `begin_drain` is what a stopping server calls first."""

    def __init__(
        self,
        services: Services,
        *,
        limits: RequestLimits,
        on_started: Callable[[], None],
        on_stopped: Callable[[], Awaitable[None]],
        reload: Callable[[], Coroutine[Any, Any, None]],
        is_padded: bool = True,
        has_cadence: bool = False,
    ) -> None:
        """`on_stopped` runs after the last request, to flush what was collected; `reload` on
        SIGHUP.
        """
        self.services = services
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._reload = reload
        app = Starlette(
            routes=ROUTES,
            lifespan=self._lifespan,
            middleware=[
                Middleware(RefusalNotes, audit=services.audit, known_paths=_KNOWN_PATHS),
                Middleware(FaultBarrier),
                *_ehbp_door(services, limits),
                Middleware(StreamShaper, is_padded=is_padded, has_cadence=has_cadence),
                Middleware(
                    Witness,
                    book=services.receipts,
                    counts=is_witnessed,
                    on_ended=self._note_refusal,
                ),
                Middleware(FaultBarrier),
                Middleware(
                    ClientPlaces,
                    max_open=limits.max_concurrent_streams,
                    counts=is_of_client,
                ),
                Middleware(ConcurrencyLimit, max_open=MAX_OPEN_EVIDENCE, counts=is_evidence),
                Middleware(BodyLimit, limits=limits, is_sealed=is_encapsulated),
            ],
            exception_handlers={
                GatewayError: gateway_error_response,
                HTTPException: http_error_response,
            },
        )
        app.router.redirect_slashes = False
        app.state.services = services
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def begin_drain(self) -> None:
        """Refuse new requests, give running ones their time. On the event loop; idempotent."""
        self.services.drain.begin()

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._on_started()
        self.services.directory.start()
        rotating = asyncio.ensure_future(self.services.doors.keep())
        try:
            with drain_on_signals(self.begin_drain), reload_on_hangup(self._reload):
                yield
        finally:
            rotating.cancel()
            await asyncio.wait({rotating})
            await self.services.directory.stop()
            await self._on_stopped()

    def _note_refusal(self, receipt: OpenReceipt) -> None:
        """In the audit log, with the precise class that the answer does not tell."""
        if receipt.outcome not in ("refused", "failed") or receipt.code is None:
            return
        fields: dict[str, str | int] = {"endpoint": receipt.endpoint, "status": receipt.status or 0}
        if receipt.owner is not None:
            fields |= {"key": receipt.owner.key_id, "receipt": receipt.id}
        detail = None if receipt.refusal is None else receipt.refusal.precise_code
        self.services.audit.refused(receipt.code, detail, **fields)


def is_witnessed(scope: Scope) -> bool:
    """Requests that a worker computes for."""
    path: str = scope["path"]
    return scope["method"] == "POST" and path in _WITNESSED


def is_encapsulated(scope: Scope) -> bool:
    """The body holds a whole request."""
    path: str = scope["path"]
    return path in {OHTTP_PATH, KEY_LIST_PATH, TNG_PATH}


def is_evidence(scope: Scope) -> bool:
    """Anybody may ask for it, and answering is work."""
    path: str = scope["path"]
    return path == ATTESTATION_PATH


def is_of_client(scope: Scope) -> bool:
    """Health checks and operators are never refused for load."""
    path: str = scope["path"]
    return path.startswith("/v1/") or is_encapsulated(scope)


def _ehbp_door(services: Services, limits: RequestLimits) -> Sequence[Middleware]:
    doors = services.doors
    if not isinstance(doors, TerminatingDoors):
        return ()
    return (
        Middleware(
            EhbpDoor, keys=doors.keys, limits=limits, unopened=doors.unopened, rng=os.urandom
        ),
    )
