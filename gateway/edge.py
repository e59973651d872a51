"""What happens to an exception that no handler knows?  It ends here: one safe log line, one 500.

The first middleware of both apps, inside Starlette's own catch-all, which would answer in plain
text and raise on to the server, whose traceback could quote a prompt.
"""

import logging
from collections.abc import Awaitable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.faults import describe_fault
from gateway.problems import GatewayError, response_for

_log = logging.getLogger(__name__)


class AnswerWithheld(Exception):
    """Raised to who sends: the client got a refusal in place of the answer, and the rest of it
    goes nowhere.
    """


class FaultBarrier:
    """Swallows what falls through, answering 500 when no response has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        def watched(message: Message) -> Awaitable[None]:  # no coroutine of its own: events pass
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            return send(message)

        try:
            await self._app(scope, receive, watched)
        except AnswerWithheld:
            raise
        except Exception as err:  # the process edge
            _log.error("request failed: %s", describe_fault(err))
            if not has_begun:
                error = GatewayError("internal_error", "The server failed.")
                await response_for(scope, error)(scope, receive, send)


async def gateway_error_response(request: Request, error: Exception) -> Response:
    """Starlette's handler for GatewayError."""
    if not isinstance(error, GatewayError):
        raise error
    return response_for(request.scope, error)


async def http_error_response(request: Request, error: Exception) -> Response:
    """Starlette's handler for its own 404 and 405."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if error.status_code == 405:
        error_405 = GatewayError("method_not_allowed", "This path has another method.")
        response = response_for(request.scope, error_405)
        response.headers["allow"] = ", ".join(_methods_of(request))
        return response
    if error.status_code == 404:
        code = "unsupported_endpoint" if path.startswith("/v1/") else "not_found"
        return response_for(request.scope, GatewayError(code, "There is no such endpoint."))
    return response_for(
        request.scope, GatewayError("invalid_value", "The request is not valid HTTP.")
    )


def _methods_of(request: Request) -> list[str]:
    """Of all routes of this path: one that has another method is not the only one."""
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
