"""The wire between gateway and worker, in the attacker's hands: what does he see pass?"""

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.demo.attacks import ATTESTATION_PATH, KEYS_PATH, Attack
from gateway.streaming import StreamedBody

_TIMEOUT: Final = httpx.Timeout(600.0, connect=5.0)


class Wire:
    """An ASGI app before the worker's socket. It keeps every sealed request that it passes on."""

    def __init__(self, worker: Path, *, utc_now: Callable[[], datetime]) -> None:
        self.attack: Attack | None = None
        self.forwarded: list[bytes] = []
        self._utc_now = utc_now
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(worker)),
            base_url="http://worker",
            timeout=_TIMEOUT,
            trust_env=False,
        )
        self._app = Starlette(
            routes=[
                Route(ATTESTATION_PATH, self._answer),
                Route(KEYS_PATH, self._answer),
                Route("/ohttp", self._pass_on, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _answer(self, request: Request) -> Response:
        """The worker's answer, or what the attack makes of it."""
        path = request.url.path
        try:
            answer = await self._client.get(path, params=dict(request.query_params))
        except httpx.HTTPError:  # the worker is still starting
            return Response(status_code=502)
        body = answer.content
        if answer.status_code == 200 and self.attack is not None and self.attack.path == path:
            body = self.attack.alter(body, self._utc_now())
        return Response(body, answer.status_code, media_type=answer.headers.get("content-type"))

    async def _pass_on(self, request: Request) -> Response:
        body = await request.body()
        self.forwarded.append(body)
        media_type = request.headers.get("content-type", "")
        sent = self._client.build_request(
            "POST", "/ohttp", content=body, headers={"content-type": media_type}
        )
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx.HTTPError:
            return Response(status_code=502)
        response = StreamedBody(
            _pieces(answer),
            on_close=answer.aclose,
            media_type=answer.headers.get("content-type", ""),
        )
        response.status_code = answer.status_code
        return response


async def _pieces(answer: httpx.Response) -> AsyncGenerator[bytes, None]:
    async for piece in answer.aiter_raw():
        yield piece
