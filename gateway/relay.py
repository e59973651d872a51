"""How does one request reach a verified worker, and another one where that cannot answer?"""

import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from attestation.channel import Rng, bhttp
from attestation.channel.bhttp import http_date
from gateway.auth import Principal, cache_salt
from gateway.calls import MALFORMED, Call, public_code, public_text
from gateway.drain import Drain
from gateway.exchange import CODES_OF_A_SICK_WORKER, Exchange
from gateway.observe import Clocks, RequestTrace
from gateway.pins import Pins, require_grant_pins
from gateway.problems import GatewayError
from gateway.sealed import (
    MAX_PROBLEM_BYTES,
    SealedExchange,
    StaleKey,
    open_exchange,
    read_bounded,
)
from gateway.worker_node import WorkerNode
from gateway.workers import WorkerDirectory

MAX_WORKERS_TRIED: Final = 3
_CODES_OF_NOW: Final = frozenset(  # another worker may do better
    {"overloaded", "server_stopping", "upstream_verification_failed", "worker_not_ready"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Relays calls; `salt_secret` turns a tenant into its prefix-cache salt."""

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
        self, call: Call, principal: Principal, trace: RequestTrace, *, pins: Pins
    ) -> Exchange:
        """Dispatch and wait for the worker's first byte.

        Raises: GatewayError, `session_not_accepted` and the worker's own refusals included.
        """
        exchange = Exchange(relay=self, call=call, trace=trace)
        try:
            await exchange.run(self._dispatch(call, principal, trace, pins, exchange))
        except BaseException:
            await exchange.aclose()
            raise
        return exchange

    async def _dispatch(
        self,
        call: Call,
        principal: Principal,
        trace: RequestTrace,
        pins: Pins,
        exchange: Exchange,
    ) -> None:
        """Until the head of an answer came nothing was told to the client, so another worker may
        be asked, under its own lease, when one cannot answer.
        """
        tokens = call.estimated_prompt_tokens
        node: WorkerNode | None = await self.directory.node_for(call.model, tokens=tokens)
        tried: list[WorkerNode] = []
        while node is not None:
            tried.append(node)
            try:
                await self._try(node, call, principal, trace, pins, exchange)
                return
            except GatewayError as err:
                exchange.note_failure(err)
                may_help = err.code in CODES_OF_A_SICK_WORKER | _CODES_OF_NOW
                if not may_help or len(tried) == MAX_WORKERS_TRIED:
                    raise
                node = self.directory.other_for(call.model, tokens=tokens, tried=tried)
                if node is None:
                    raise
                await exchange.leave()

    async def _try(
        self,
        node: WorkerNode,
        call: Call,
        principal: Principal,
        trace: RequestTrace,
        pins: Pins,
        exchange: Exchange,
    ) -> None:
        trace.facts.worker_id = node.id
        exchange.watch(node)
        try:
            sealed = await self._send(node, call, principal, trace, pins)
        except StaleKey:  # nothing ran: once more, to the key that it attests now
            await self.directory.reattest(node)
            exchange.watch(node)
            try:
                sealed = await self._send(node, call, principal, trace, pins)
            except StaleKey:
                raise GatewayError(
                    "upstream_unavailable", "The worker keeps changing its key."
                ) from None
        exchange.begin(sealed)
        trace.timeline.mark_first_byte(self.clocks.monotonic_ns())
        if sealed.status != 200:
            raise await _inner_error(sealed)
        trace.facts.has_answer = True

    async def _send(
        self, node: WorkerNode, call: Call, principal: Principal, trace: RequestTrace, pins: Pins
    ) -> SealedExchange:
        grant = self.directory.require_lease(node)
        require_grant_pins(pins, grant)
        trace.facts.lease, trace.facts.hop = grant.lease, grant.client
        trace.facts.weights_sha256 = grant.facts.weights_sha256
        started_ns = self.clocks.monotonic_ns()

        def mark_sealed() -> None:
            sealed_ns = self.clocks.monotonic_ns()
            trace.facts.sealing_ns = (started_ns, sealed_ns)
            trace.timeline.mark_dispatched(sealed_ns)

        request = self._inner_request(call, principal, trace)
        return await open_exchange(
            grant.client, grant.lease.key_config, request, rng=self.rng, on_sealed=mark_sealed
        )

    def _inner_request(
        self, call: Call, principal: Principal, trace: RequestTrace
    ) -> bhttp.Request:
        salt = cache_salt(self.salt_secret, principal.tenant)
        fields = (
            ("content-type", "application/json"),
            ("date", http_date(self.utc_now())),
            ("starshade-cache-salt", salt.hex()),
            ("starshade-priority", str(principal.priority)),
            ("starshade-request-id", trace.facts.request_id),
            ("traceparent", trace.traceparent),
        )
        return bhttp.Request(
            method="POST", authority="worker", path=call.path, fields=fields, content=call.body
        )


async def _inner_error(sealed: SealedExchange) -> GatewayError:
    """The worker's own refusal, as ours."""
    async with aclosing(sealed.content()) as content:
        body = await read_bounded(content, MAX_PROBLEM_BYTES)
    try:
        error = json.loads(body)["error"]
        code, message, param = public_code(error["code"]), error["message"], error["param"]
        param = public_text(param) if isinstance(param, str) else None
        return GatewayError(code, public_text(message), param=param)
    except MALFORMED:
        return GatewayError("upstream_error", "The worker's refusal is malformed.")
