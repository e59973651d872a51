"""What does `starshade connect` serve on this machine?

Any process of this machine may use it, so it is not for web pages: a page can send requests to a
port of this machine, and point a name of its own at it, but it cannot choose the Host, Origin and
Sec-Fetch-Site headers that its browser sends.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from attestation.transport import EvidenceRefused, SessionKeeper
from gateway.config_rules import loopback_host
from gateway.connect.forward import PATH_PREFIX, Forwarder, refusal
from gateway.connect.watch import Watch
from gateway.edge import FaultBarrier, gateway_error_response, http_error_response
from gateway.limits import BodyLimit, RequestLimits
from gateway.problems import GatewayError, response_for
from gateway.worker_node import RAN_OUT_CODES

MAX_BODY_BYTES: Final = 64 << 20  # the gateway has a limit of its own
METHODS: Final = ["GET", "POST", "DELETE"]
RAN_OUT_S: Final = 30.0  # for answers under a verdict that ran out
LOOK_S: Final = 1.0  # between two looks whether it has


class ConnectApp:
    """The ASGI app; verifies anew in the background while it runs."""

    def __init__(self, forwarder: Forwarder, keeper: SessionKeeper, watch: Watch) -> None:
        self._forwarder = forwarder
        self._keeper = keeper
        self._watch = watch
        app = Starlette(
            routes=[
                Route(f"{PATH_PREFIX}/{{path:path}}", self._forward, methods=METHODS),
                Route("/verdict", self._verdict),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
            ],
            lifespan=self._lifespan,
            middleware=[
                Middleware(FaultBarrier),
                Middleware(OwnMachineOnly),
                Middleware(BodyLimit, limits=RequestLimits(max_body_bytes=MAX_BODY_BYTES)),
            ],
            exception_handlers={
                GatewayError: gateway_error_response,
                HTTPException: http_error_response,
            },
        )
        app.router.redirect_slashes = False
        self._app: ASGIApp = app
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def on_refused(self, refused: EvidenceRefused) -> None:
        """From any thread: answers under way end, in a while where Evidence merely ran out."""
        if self._loop is None:
            return
        after_s = RAN_OUT_S if refused.code in RAN_OUT_CODES else 0.0
        interrupt = partial(self._forwarder.streams.interrupt, refusal(refused), after_s=after_s)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every answer
            self._loop.call_soon_threadsafe(self._watch.wake.set)
            self._loop.call_soon_threadsafe(interrupt)

    async def _end_lapsed(self) -> None:
        """Until cancelled: answers under a verdict that nobody renewed end in a while."""
        had_session = False
        while True:
            has_session = self._keeper.session is not None
            if had_session and not has_session:
                self._forwarder.streams.interrupt(_no_verdict(), after_s=RAN_OUT_S)
            had_session = has_session
            await asyncio.sleep(LOOK_S)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(work) for work in (self._watch.run(), self._end_lapsed())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._forwarder.client.aclose()

    async def _forward(self, request: Request) -> Response:
        return await self._forwarder.forward(request)

    async def _verdict(self, _request: Request) -> Response:
        """The one that requests are sealed under now."""
        session = self._keeper.session
        if session is None:
            raise _no_verdict()
        return JSONResponse(session.result.to_dict(), headers={"cache-control": "no-store"})

    async def _healthz(self, _request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _readyz(self, _request: Request) -> Response:
        is_ready = self._keeper.session is not None
        status = "ready" if is_ready else "not_verified"
        return JSONResponse({"status": status}, status_code=200 if is_ready else 503)


class OwnMachineOnly:
    """Refuses web pages: another Host than this machine's own, any Origin, and any other site.

    What a page only shows, such as an image, is asked for without an Origin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := _foreign(Headers(scope=scope))) is not None:
            await response_for(scope, error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _no_verdict() -> GatewayError:
    return GatewayError("upstream_verification_failed", "There is no verdict now.")


def _foreign(headers: Headers) -> GatewayError | None:
    if loopback_host(host_name(headers.get("host", ""))) is not None:
        return GatewayError("unknown_host", "This port answers to this machine's own names alone.")
    site = headers.get("sec-fetch-site", "none")  # "none" is the person, by the address bar
    if "origin" in headers or site not in ("none", "same-origin"):
        return GatewayError("origin_not_allowed", "This port is not for web pages.")
    return None


def host_name(host: str) -> str:
    """The name of a Host header without port and brackets, lower case."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]
