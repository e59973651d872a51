"""What does a worker answer on its socket?  Evidence, keys, and sealed requests; nothing in clear.

A sealed request is opened as it arrives but acted on only when its final chunk verified. Outer
errors are problem details with one fixed text per code; everything else travels inside.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from attestation.channel import (
    KEY_LIST_TYPE,
    ChunkLimits,
    MalformedInner,
    RefusedTarget,
    Rng,
    bhttp,
    serialize_key_configs,
)
from attestation.errors import AttestationError
from attestation.keyset import ReceiptKey
from attestation.model import parse_nonce
from gateway.channel_keys import ChannelKeys
from gateway.direct import DirectSlot
from gateway.doors.opening import refusal, sealed_date
from gateway.drain import drain_on_signals
from gateway.edge import FaultBarrier, gateway_error_response, http_error_response
from gateway.faults import describe_fault
from gateway.problems import GatewayError
from gateway.streaming import StreamedBody, until_disconnected
from gateway.worker.attester import Attester
from gateway.worker.inner import (
    InnerRequest,
    InnerResponse,
    InnerService,
    Workload,
    error_response,
    fault_response,
)
from gateway.worker.node_receipts import NodeReceipts
from gateway.worker.sealing import open_request
from runtime import StepStats
from runtime.sequence import MAX_PRIORITY, MIN_PRIORITY

_log = logging.getLogger(__name__)

MAX_REQUEST_ID_CHARS: Final = 64
MAX_SALT_BYTES: Final = 64
_PRIORITIES: Final = frozenset(str(p) for p in range(MIN_PRIORITY, MAX_PRIORITY + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyWorker:
    """A loaded worker's parts."""

    model_name: str
    weights_sha256: str
    attester: Attester
    service: InnerService
    bridge: Workload
    latest_step: Callable[[], StepStats | None]


@dataclass(slots=True, kw_only=True)
class WorkerState:
    """What the worker is now: loading until `ready` is set.

    Changed on the event loop only, but for `progress`, which the loading thread writes.
    """

    keys: ChannelKeys = field(repr=False)
    limits: ChunkLimits
    is_blind_edge: bool  # requests come from clients, through a gateway that cannot read them
    rng: Rng = field(repr=False)
    new_request_id: Callable[[], str]
    receipts: NodeReceipts | None = None  # where the gateway cannot sign any
    progress: float = 0.0
    failure: str | None = None
    ready: ReadyWorker | None = None

    @property
    def receipt_key(self) -> ReceiptKey | None:
        return None if self.receipts is None else self.receipts.key

    def witnessed(self, service: InnerService, *, weights_sha256: str) -> InnerService:
        """The service, with receipts where it is this side that signs them."""
        if self.receipts is None:
            return service
        return self.receipts.witness(service, weights_sha256=weights_sha256)

    def require_ready(self) -> ReadyWorker:
        """Raises: GatewayError `worker_not_ready`, `tee_unavailable`."""
        if self.failure == "tee_unavailable":
            raise GatewayError(self.failure, "The worker has no TEE that it may attest with.")
        if self.ready is None:
            raise GatewayError("worker_not_ready", "The worker is loading its model.")
        return self.ready


class WorkerApp:
    """The worker's ASGI app. `begin_drain` is what a stopping server calls first."""

    def __init__(
        self,
        state: WorkerState,
        *,
        drain_s: float,
        load: Callable[[WorkerState], AsyncGenerator[None, None]],
    ) -> None:
        """`load` runs until its first yield at start-up in the background, and is closed last."""
        self.state = state
        self._drain_s = drain_s
        self._load = load
        self._draining: asyncio.Task[None] | None = None
        routes = [
            Route("/attestation", self._attestation),
            Route("/keys", self._keys),
            Route("/ohttp", self._ohttp, methods=["POST"]),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/stats", self._stats),
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            middleware=[Middleware(FaultBarrier)],
            exception_handlers={
                GatewayError: gateway_error_response,
                HTTPException: http_error_response,
            },
        )
        app.router.redirect_slashes = False
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def begin_drain(self) -> None:
        """Refuse new requests, give running ones `drain_s`. On the event loop; idempotent."""
        if self._draining is None and self.state.ready is not None:
            self._draining = asyncio.ensure_future(self.state.ready.bridge.drain(self._drain_s))

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        loader = self._load(self.state)
        loading = asyncio.ensure_future(self._run_loader(loader))
        rotating = asyncio.ensure_future(self.state.keys.keep())
        try:
            with drain_on_signals(self.begin_drain):
                yield
        finally:
            self.begin_drain()
            if self._draining is not None:
                await self._draining
            for task in (loading, rotating):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await loader.aclose()

    async def _run_loader(self, loader: AsyncGenerator[None, None]) -> None:
        try:
            await anext(loader)
        except GatewayError as err:
            self.state.failure = err.code
            _log.error("the worker cannot serve: %s", err.message, extra={"code": err.code})
        except Exception as err:  # the loader's edge: /readyz must say that it failed
            self.state.failure = "internal_error"
            _log.error("the worker cannot serve: %s", describe_fault(err))

    # -- routes ----------------------------------------------------------------------------

    async def _attestation(self, request: Request) -> Response:
        ready = self.state.require_ready()
        try:
            nonce = parse_nonce(request.query_params.get("nonce", ""))
        except AttestationError as err:
            raise GatewayError(err.code, "The nonce is exactly 64 lowercase hex digits.") from None
        bundle = await asyncio.to_thread(ready.attester.bundle, nonce)
        return Response(
            bundle, media_type="application/json", headers={"cache-control": "no-store"}
        )

    async def _keys(self, _request: Request) -> Response:
        keys = serialize_key_configs(self.state.keys.published)
        return Response(keys, media_type=KEY_LIST_TYPE, headers={"cache-control": "no-store"})

    async def _ohttp(self, request: Request) -> Response:
        ready, state = self.state.require_ready(), self.state
        opened = await open_request(
            request, state.keys.opening(), limits=state.limits, rng=state.rng
        )
        try:  # from here on answers are sealed, but for what tells clients to set their clocks
            message = bhttp.parse_request(opened.message, drops_connection_fields=True)
        except (MalformedInner, RefusedTarget) as err:
            response = error_response(refusal(err))
        else:
            date = sealed_date(message)
            state.keys.require_new(opened.key_id, opened.enc, date=date)
            responding = self._respond(ready.service, message)
            response = await until_disconnected(request.receive, responding)
        slot = DirectSlot()
        return StreamedBody(
            opened.seal(response, slot),
            on_close=response.body.aclose,
            media_type=opened.media_type,
            slot=slot,
        )

    async def _healthz(self, _request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _readyz(self, _request: Request) -> Response:
        state = self.state
        if self._draining is not None:
            return JSONResponse({"status": "stopping"}, status_code=503)
        if state.failure is not None:
            return JSONResponse({"status": "failed", "code": state.failure}, status_code=503)
        if state.ready is None:
            loading = {"status": "loading", "progress": round(state.progress, 3)}
            return JSONResponse(loading, status_code=503)
        ready = state.ready
        return JSONResponse(
            {
                "status": "ready",
                "model": ready.model_name,
                "weights_sha256": ready.weights_sha256,
            }
        )

    async def _stats(self, _request: Request) -> Response:
        """Counts for operators and tests; nothing about any one request."""
        ready = self.state.require_ready()
        step = ready.latest_step()
        return JSONResponse(
            {"open": ready.bridge.num_open, "step": None if step is None else asdict(step)}
        )

    async def _respond(self, service: InnerService, message: bhttp.Request) -> InnerResponse:
        try:
            return await service.respond(self._inner_request(message))
        except GatewayError as err:
            return error_response(err)
        except Exception as err:  # the edge of one request: it fails, inside the seal
            response, description = fault_response(err)
            _log.error("request failed: %s", description)
            return response

    def _inner_request(self, message: bhttp.Request) -> InnerRequest:
        """What the gateway decides for its clients, nobody decides where it reads nothing: all are
        of one priority, and share no prefixes but by a salt of their own that is secret.

        Raises: GatewayError `malformed_inner`.
        """
        fields, is_blind = dict(message.fields), self.state.is_blind_edge
        salt = _salt(fields.get("starshade-cache-salt", ""))
        return InnerRequest(
            method=message.method,
            path=message.path,
            body=message.content,
            request_id=self._request_id("" if is_blind else fields.get("starshade-request-id", "")),
            cache_salt=self.state.rng(MAX_SALT_BYTES) if is_blind and not salt else salt,
            traceparent=fields.get("traceparent"),
            priority=0 if is_blind else _priority(fields.get("starshade-priority", "0")),
        )

    def _request_id(self, proposed: str) -> str:
        is_usable = proposed.isascii() and proposed.isalnum()
        return (
            proposed
            if is_usable and len(proposed) <= MAX_REQUEST_ID_CHARS
            else self.state.new_request_id()
        )


def _priority(value: str) -> int:
    """Raises: GatewayError `malformed_inner`."""
    if value not in _PRIORITIES:
        raise GatewayError("malformed_inner", "The priority is not one that the engine knows.")
    return int(value)


def _salt(value: str) -> bytes:
    """Raises: GatewayError `malformed_inner`: a salt that is not understood must not be ignored."""
    try:
        salt = bytes.fromhex(value)
    except ValueError:
        raise GatewayError("malformed_inner", "The cache salt is not hexadecimal.") from None
    if len(salt) > MAX_SALT_BYTES:
        raise GatewayError("malformed_inner", f"The cache salt exceeds {MAX_SALT_BYTES} bytes.")
    return salt
