"""What answers when the model is served by vLLM or SGLang in the same machine?  An adapter.

It stands where the engine does: this process attests, opens and seals, and passes plaintext on to
the server over a loopback connection that does not leave the trust domain.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import httpx

from gateway import sse
from gateway.calls import MALFORMED, MAX_ANSWER_BYTES, Call, too_large_an_answer
from gateway.endpoints import ENDPOINTS
from gateway.facts import EngineFacts
from gateway.problems import GatewayError, openai_body
from gateway.response_call import RESPONSES_PATH
from gateway.schemas.wire import parse_object
from gateway.sealed import read_bounded
from gateway.worker.dialects import client_answer, refusal, upstream_body
from gateway.worker.inner import (
    MODELS_PATH,
    InnerRequest,
    InnerResponse,
    error_response,
    json_response,
    model_list,
    require_endpoint,
)
from gateway.worker.obfuscation import Filler
from gateway.worker.upstream_responses import ResponseByChat
from gateway.worker_http import UNIX_SCHEME

MAX_REFUSAL_BYTES: Final = 64 << 10
MAX_MODELS: Final = 64
ASK_AGAIN_S: Final = 1.0  # while the server loads its model
_CONNECT_S: Final = 5.0
_CALLS: Final[Mapping[str, Callable[[Mapping[str, Any]], Call]]] = MappingProxyType(
    {endpoint.path: endpoint.validate for endpoint in ENDPOINTS}
)


def upstream_client(address: str) -> httpx.AsyncClient:
    """`address` is `unix:/path` or a loopback URL. Its answers may take their time."""
    uds = address.removeprefix(UNIX_SCHEME) if address.startswith(UNIX_SCHEME) else None
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(
            uds=uds, limits=httpx.Limits(max_connections=None), trust_env=False
        ),
        base_url="http://upstream" if uds else address,
        timeout=httpx.Timeout(None, connect=_CONNECT_S),
        headers={"accept-encoding": "identity"},
        trust_env=False,
    )


async def served_models(http: httpx.AsyncClient) -> tuple[str, ...]:
    """Waits until the server answers with at least one model."""
    while True:
        with suppress(httpx.HTTPError, GatewayError, *MALFORMED):
            async with http.stream("GET", MODELS_PATH) as response:
                body = await read_bounded(response.aiter_raw(), MAX_REFUSAL_BYTES)
            if response.status_code == 200:
                names = [str(entry["id"]) for entry in json.loads(body)["data"]]
                if names:
                    return tuple(names[:MAX_MODELS])
        await asyncio.sleep(ASK_AGAIN_S)


@dataclass(slots=True)
class _Outcome:
    """How one request went, as far as it got."""

    arrived_ns: int
    finish_reason: str | None = None
    error_code: str | None = "client_disconnected"  # until it ended otherwise

    def read(self, answer: Mapping[str, Any]) -> None:
        for choice in answer.get("choices", ()):
            if choice["finish_reason"] is not None:
                self.finish_reason = str(choice["finish_reason"])


class UpstreamService:
    """`gateway.worker.inner.InnerService`, and what drains it."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        dialect: str,
        models: tuple[str, ...],
        unix_s: Callable[[], float],
        clock_ns: Callable[[], int],
        report: Callable[[EngineFacts], None],
        filler: Filler,
    ) -> None:
        self._http = http
        self._filler = filler
        self._dialect = dialect
        self._models = models
        self._unix_s = unix_s
        self._created_s = int(unix_s())
        self._clock_ns = clock_ns
        self._report = report
        self._open: set[httpx.Response] = set()
        self._num_open = 0
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def num_open(self) -> int:
        return self._num_open

    async def drain(self, drain_s: float) -> None:
        """Refuses new requests and gives running ones so long; then their connections close."""
        self._is_draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._is_idle.wait()
        for response in tuple(self._open):
            await response.aclose()

    async def respond(self, request: InnerRequest) -> InnerResponse:
        """Never raises for a bad request: errors are responses in OpenAI's shape."""
        try:
            return await self._answer(request)
        except GatewayError as err:
            return error_response(err)

    async def _answer(self, request: InnerRequest) -> InnerResponse:
        require_endpoint(request)
        if request.path == MODELS_PATH:
            return json_response(200, model_list(self._models, created_s=self._created_s))
        if self._is_draining:
            raise GatewayError("server_stopping", "The worker is stopping.")
        if request.path == RESPONSES_PATH:
            return await self._respond(request)
        call = _CALLS[request.path](parse_object(request.body))
        if call.model not in self._models:
            raise GatewayError("model_not_found", "This model is not served here.", param="model")
        body = upstream_body(call.body, dialect=self._dialect, cache_salt=request.cache_salt)
        exchange = self._exchange(call, body, request)
        first = await anext(exchange)
        if call.is_streamed:
            return InnerResponse(status=200, media_type=sse.MEDIA_TYPE, body=exchange)
        await exchange.aclose()
        return json_response(200, json.loads(first))

    async def _respond(self, request: InnerRequest) -> InnerResponse:
        """To a request for a response: the server need only chat."""
        made = ResponseByChat.of(request, unix_s=self._unix_s, filler=self._filler)
        if made.call.model not in self._models:
            raise GatewayError("model_not_found", "This model is not served here.", param="model")
        body = upstream_body(made.call.body, dialect=self._dialect, cache_salt=request.cache_salt)
        chat = self._exchange(made.call, body, request)
        if not made.asked.is_streamed:
            return json_response(200, await made.whole(chat))
        events = made.events(chat)
        await anext(events)
        return InnerResponse(status=200, media_type=sse.MEDIA_TYPE, body=events)

    async def _exchange(
        self, call: Call, body: bytes, request: InnerRequest
    ) -> AsyncGenerator[bytes, None]:
        """The whole answer as one item; of a stream first an empty item once the server accepted,
        then its events. Closing it closes the connection, which is how the server learns of it.
        """
        outcome = _Outcome(arrived_ns=self._clock_ns())
        self._num_open += 1
        self._is_idle.clear()
        try:
            response = await self._post(call, body)
            self._open.add(response)
            try:
                if call.is_streamed:
                    yield b""
                    async for data in self._events(response, call, request, outcome):
                        yield data
                else:
                    yield await self._whole(response, request, outcome)
            finally:
                self._open.discard(response)
                await response.aclose()
        except GatewayError as err:
            outcome.error_code = err.code
            raise
        finally:
            self._num_open -= 1
            if self._num_open == 0:
                self._is_idle.set()
            self._report(
                EngineFacts(
                    request_id=request.request_id,
                    traceparent=request.traceparent,
                    arrived_ns=outcome.arrived_ns,
                    ended_ns=self._clock_ns(),
                    finish_reason=outcome.finish_reason,
                    error_code=outcome.error_code,
                    timing=None,
                )
            )

    async def _post(self, call: Call, body: bytes) -> httpx.Response:
        """An open response of status 200. Raises: GatewayError."""
        http_request = self._http.build_request(
            "POST", call.path, content=body, headers={"content-type": "application/json"}
        )
        try:
            response = await self._http.send(http_request, stream=True)
        except httpx.HTTPError:
            raise GatewayError(
                "upstream_unavailable", "The model server cannot be reached."
            ) from None
        if response.status_code == 200:
            return response
        try:
            said = await read_bounded(response.aiter_raw(), MAX_REFUSAL_BYTES)
        except httpx.HTTPError:
            said = b""
        finally:
            await response.aclose()
        raise refusal(response.status_code, said, path=call.path)

    async def _whole(
        self, response: httpx.Response, request: InnerRequest, outcome: _Outcome
    ) -> bytes:
        try:
            body = await read_bounded(
                response.aiter_raw(), MAX_ANSWER_BYTES, error=too_large_an_answer()
            )
            answer = client_answer(json.loads(body), request_id=request.request_id)
            outcome.read(answer)
        except (httpx.HTTPError, *MALFORMED):
            raise _broken() from None
        outcome.error_code = None
        return json.dumps(answer).encode()

    async def _events(
        self,
        response: httpx.Response,
        call: Call,
        request: InnerRequest,
        outcome: _Outcome,
    ) -> AsyncGenerator[bytes, None]:
        """What came together goes on together; an end without `[DONE]` is told as an error."""
        splitter, is_done, out = sse.EventSplitter(), False, b""
        try:
            async for data in response.aiter_raw():
                for event in splitter.feed(data):
                    said = sse.event_data(event)
                    if said == sse.DONE_DATA:
                        is_done = True
                        out += sse.DONE
                    elif said:
                        chunk = client_answer(json.loads(said), request_id=request.request_id)
                        outcome.read(chunk)
                        out += self._event(chunk, call)
                if out:
                    yield out
                    out = b""
            if not is_done:
                raise _broken()
            outcome.error_code = None
        except (httpx.HTTPError, sse.EventTooLargeError, *MALFORMED):
            outcome.error_code = "generation_failed"
            yield out + sse.encode_json(openai_body(_broken()))
        except GatewayError as err:
            outcome.error_code = err.code
            yield out + sse.encode_json(openai_body(err))

    def _event(self, chunk: dict[str, Any], call: Call) -> bytes:
        """The server always tells usage, and never fills a delta up."""
        choices = chunk.get("choices")
        if not call.wants_usage and chunk.pop("usage", None) is not None and not choices:
            return b""
        if call.wants_obfuscation and choices:
            chunk["obfuscation"] = self._filler(len(sse.compact(choices)))
        return sse.encode_json(chunk)


def _broken() -> GatewayError:
    return GatewayError("generation_failed", "The model server's answer broke off.")
