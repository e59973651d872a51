"""How does one chat request reach a verified worker, and its answer the client, event by event?

Nothing is buffered: an event goes out when its chunk opened, and `[DONE]` when the final one has.
Usage and times are read on the way past. The exchange ends with the client, with the deadline, with
a worker that neither sends anything nor attests any more, or with its own final chunk.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from attestation.channel import Rng, bhttp
from gateway import sse
from gateway.attest import http_date
from gateway.auth import Principal, cache_salt
from gateway.drain import Drain
from gateway.faults import describe_fault
from gateway.observe import CHAT_ROUTE, ChatTrace, Clocks
from gateway.problems import GatewayError, is_known_code, openai_body
from gateway.schemas import ChatRequest
from gateway.sealed import SealedExchange, StaleKey, open_exchange, read_bounded, truncated
from gateway.silence import SilenceWatch
from gateway.workers import WorkerDirectory, WorkerNode

MAX_WHOLE_BYTES: Final = 16 << 20  # of one unstreamed answer
_ATTEMPTS: Final = 2  # the second only after the worker said that it could not open the first
_CODES_OF_A_SICK_WORKER: Final = frozenset({"upstream_unavailable", "upstream_truncated"})
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Relays chat requests; `salt_secret` turns a tenant into its prefix-cache salt."""

    directory: WorkerDirectory
    drain: Drain
    salt_secret: bytes = field(repr=False)
    deadline_s: float
    silence_s: float  # how long a worker may send nothing before it is asked whether it lives
    rng: Rng = field(repr=False)
    utc_now: Callable[[], datetime]
    clocks: Clocks
    log_fault: Callable[[str], None]

    async def open(
        self, chat: ChatRequest, body: bytes, principal: Principal, trace: ChatTrace
    ) -> "ChatExchange":
        """Dispatch and wait for the worker's first byte; `body` is `inner_body(chat)`.

        Raises: GatewayError, the worker's own refusals included.
        """
        exchange = ChatExchange(relay=self, chat=chat, trace=trace)
        try:
            await exchange.run(self._dispatch(chat, body, principal, trace, exchange))
        except BaseException:
            await exchange.aclose()
            raise
        return exchange

    async def _dispatch(
        self,
        chat: ChatRequest,
        body: bytes,
        principal: Principal,
        trace: ChatTrace,
        exchange: "ChatExchange",
    ) -> None:
        node = await self.directory.node_for(chat.model)
        trace.facts.worker_id = node.id
        for attempt in range(_ATTEMPTS):
            exchange.watch(node)
            try:
                sealed = await self._send(node, body, principal, trace)
                break
            except StaleKey:
                if attempt:
                    raise GatewayError(
                        "upstream_unavailable", "The worker keeps changing its key."
                    ) from None
                await self.directory.reattest(node)
            except GatewayError as err:
                self.note_failure(node, err)
                raise
        else:  # pragma: no cover - the loop breaks or raises
            raise truncated()
        exchange.begin(node, sealed)
        trace.timeline.mark_first_byte(self.clocks.monotonic_ns())
        if sealed.status != 200:
            raise await _inner_error(sealed)

    async def _send(
        self, node: WorkerNode, body: bytes, principal: Principal, trace: ChatTrace
    ) -> SealedExchange:
        grant = self.directory.require_lease(node)
        trace.facts.lease_id = grant.lease.verdict_id
        started_ns = self.clocks.monotonic_ns()

        def mark_sealed() -> None:
            sealed_ns = self.clocks.monotonic_ns()
            trace.facts.sealing_ns = (started_ns, sealed_ns)
            trace.timeline.mark_dispatched(sealed_ns)

        request = self._inner_request(body, principal, trace)
        return await open_exchange(
            grant.client, grant.lease.key_config, request, rng=self.rng, on_sealed=mark_sealed
        )

    def _inner_request(self, body: bytes, principal: Principal, trace: ChatTrace) -> bhttp.Request:
        salt = cache_salt(self.salt_secret, principal.tenant)
        fields = (
            ("content-type", "application/json"),
            ("date", http_date(self.utc_now())),
            ("starshade-cache-salt", salt.hex()),
            ("starshade-request-id", trace.facts.request_id),
            ("traceparent", trace.traceparent),
        )
        return bhttp.Request(
            method="POST", authority="worker", path=CHAT_ROUTE, fields=fields, content=body
        )

    def note_failure(self, node: WorkerNode, err: GatewayError) -> None:
        if err.code in _CODES_OF_A_SICK_WORKER:
            self.directory.suspect(node)


class ChatExchange:
    """One dispatched chat request. `aclose` is idempotent and cancels the work at the worker."""

    def __init__(self, *, relay: Relay, chat: ChatRequest, trace: ChatTrace) -> None:
        self._relay = relay
        self._chat = chat
        self._trace = trace
        self._node: WorkerNode | None = None
        self._sealed: SealedExchange | None = None
        self._scope: asyncio.Timeout | None = None
        self._interruption: GatewayError | None = None
        self._deadline = asyncio.get_running_loop().time() + relay.deadline_s
        self._unregister = relay.drain.register(self._stop)
        self._silence: SilenceWatch | None = None

    def begin(self, node: WorkerNode, sealed: SealedExchange) -> None:
        self._node, self._sealed = node, sealed

    def watch(self, node: WorkerNode) -> None:
        """From now on `node` has something to answer."""
        if self._silence is not None:
            self._silence.close()
        self._silence = SilenceWatch(
            silence_s=self._relay.silence_s,
            is_waiting=lambda: self._scope is not None,  # else it is the client that we wait for
            is_alive=partial(self._is_alive, node),
            on_stuck=partial(self._give_up, node),
        )

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits within the request's deadline. Raises: GatewayError when time is up."""
        if self._silence is not None:
            self._silence.heard()
        try:
            async with asyncio.timeout_at(self._deadline) as self._scope:
                return await work
        except TimeoutError:
            raise self._interruption or GatewayError(
                "request_timeout", "The request took too long."
            ) from None
        finally:
            self._scope = None

    async def whole(self) -> bytes:
        """The unstreamed answer, complete and verified. Raises: GatewayError."""
        body = await self.run(self._read_whole())
        try:
            answer = json.loads(body)
            self._trace.facts.finish_reason = str(answer["choices"][0]["finish_reason"])
            self._take_usage(answer["usage"])
        except (ValueError, KeyError, IndexError, TypeError):
            raise GatewayError("upstream_error", "The worker's answer is malformed.") from None
        return body

    async def events(self) -> AsyncGenerator[bytes, None]:
        """SSE bytes as they arrive. A failure becomes an error event; the stream then ends."""
        facts = self._trace.facts
        try:
            async with aclosing(self._checked_events()) as events:
                async for data in events:
                    yield data
        except GatewayError as err:
            facts.fail(err.code, status=200)
            if self._node is not None:
                self._relay.note_failure(self._node, err)
            yield sse.encode_json(openai_body(err))
        except Exception as err:  # the stream's edge: the client must learn that it failed
            facts.fail("internal_error", status=200)
            self._relay.log_fault(describe_fault(err))
            yield sse.encode_json(openai_body(GatewayError("internal_error", "The relay failed.")))

    async def aclose(self) -> None:
        self._unregister()
        if self._silence is not None:
            self._silence.close()
        if self._sealed is not None:
            await self._sealed.aclose()

    async def _checked_events(self) -> AsyncGenerator[bytes, None]:
        splitter, done = sse.EventSplitter(), b""
        async with aclosing(self._content()) as content:
            while (piece := await self.run(anext(content, None))) is not None:
                now_ns = self._relay.clocks.monotonic_ns()
                out = b""
                for event in self._split(splitter, piece):
                    data = sse.event_data(event)
                    if data == sse.DONE_DATA:
                        done = event
                    elif self._take_event(data, now_ns):
                        out += event
                if out:
                    yield out
        if splitter.has_partial_event or not (done or self._trace.facts.error_code):
            raise truncated()
        if done:
            yield done

    def _split(self, splitter: sse.EventSplitter, piece: bytes) -> list[bytes]:
        try:
            return splitter.feed(piece)
        except sse.EventTooLargeError:
            raise GatewayError("upstream_error", "The worker's event is too long.") from None

    def _take_event(self, data: bytes, now_ns: int) -> bool:
        """Reads the facts in one event; False when the client did not ask for it."""
        facts = self._trace.facts
        try:
            chunk: dict[str, Any] = json.loads(data)
            if "error" in chunk:
                facts.fail(_public_code(chunk["error"].get("code")), status=200)
                return True
            for choice in chunk["choices"]:
                if choice["delta"].get("content"):
                    facts.timeline.mark_chunk(now_ns)
                if choice["finish_reason"] is not None:
                    facts.finish_reason = str(choice["finish_reason"])
            if chunk.get("usage") is not None:
                self._take_usage(chunk["usage"])
                return self._chat.wants_usage_chunk
        except (ValueError, KeyError, TypeError, AttributeError):
            raise GatewayError("upstream_error", "The worker's event is malformed.") from None
        return True

    def _take_usage(self, usage: dict[str, Any]) -> None:
        self._trace.timeline.mark_usage(
            prompt_tokens=int(usage["prompt_tokens"]),
            cached_tokens=int(usage["prompt_tokens_details"]["cached_tokens"]),
            output_tokens=int(usage["completion_tokens"]),
        )
        self._trace.facts.has_usage = True

    async def _read_whole(self) -> bytes:
        async with aclosing(self._content()) as content:
            return await read_bounded(content, MAX_WHOLE_BYTES)

    def _content(self) -> AsyncGenerator[bytes, None]:
        if self._sealed is None:
            raise truncated()
        return self._sealed.content()

    async def _is_alive(self, node: WorkerNode, silence: timedelta) -> bool:
        """Whether a worker that sent nothing for so long may wait as long as it likes.

        The head of a stream comes as soon as a request is accepted, so a worker that keeps it
        back is stuck. For anything else it may, if it still attests.
        """
        if self._sealed is None and self._chat.is_streamed:
            return False
        relay = self._relay
        return await relay.directory.is_alive(node, since=relay.utc_now() - silence)

    def _give_up(self, node: WorkerNode) -> None:
        self._relay.directory.distrust(node)
        self._interrupt(GatewayError("request_timeout", "The worker does not answer."))

    def _stop(self) -> None:
        self._interrupt(GatewayError("server_stopping", "The gateway is stopping."))

    def _interrupt(self, error: GatewayError) -> None:
        self._interruption = error
        self._deadline = asyncio.get_running_loop().time()
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(self._deadline)


async def _inner_error(sealed: SealedExchange) -> GatewayError:
    """The worker's own refusal, as ours."""
    async with aclosing(sealed.content()) as content:
        body = await read_bounded(content, MAX_WHOLE_BYTES)
    try:
        error = json.loads(body)["error"]
        code, message, param = _public_code(error["code"]), str(error["message"]), error["param"]
    except (ValueError, KeyError, TypeError):
        return GatewayError("upstream_error", "The worker's refusal is malformed.")
    return GatewayError(code, message, param=param if isinstance(param, str) else None)


def _public_code(code: object) -> str:
    return code if isinstance(code, str) and is_known_code(code) else "upstream_error"
