"""Which verified worker gets a request, and what if there is none?"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from attestation.channel import LeaseState
from gateway.leases import LeaseKeeper
from gateway.problems import GatewayError
from gateway.worker_load import Ticket
from gateway.worker_node import WorkerNode, quickest, refusal_of

DISPATCH_WAIT_S: Final = 5.0  # how long a request waits for a worker that has no lease
CIRCUIT_OPEN: Final = "circuit_open"


class WorkerDirectory(LeaseKeeper):
    """Hands out the best of the workers that hold a lease."""

    async def node_for(self, model: str, *, tokens: int = 0) -> WorkerNode:
        """The worker with a live lease on `model` that is expected to answer first.

        `tokens` is what the prompt is estimated at. Raises: GatewayError `model_not_found`,
        `upstream_verification_failed`, `upstream_unavailable`.
        """
        able = self._serving(model)
        if not able:
            await self._await_serving(self._nodes)
            able = self._serving(model) or await self._await_able(model)
        chosen = self._quickest(able, tokens)
        if chosen is None:
            raise GatewayError(
                "upstream_unavailable",
                "The workers of this model fail their requests.",
                detail_code=CIRCUIT_OPEN,
            )
        return chosen

    def other_for(
        self, model: str, *, tokens: int, tried: Sequence[WorkerNode]
    ) -> WorkerNode | None:
        """One that was not tried, verified at this moment; None when there is none."""
        able = [node for node in self._serving(model) if node not in tried]
        return self._quickest(able, tokens)

    def dispatched(self, node: WorkerNode, *, tokens: int) -> Ticket:
        """A request goes there; hand the ticket to `left` when it is over."""
        ticket = node.load.open(tokens, self._clocks.monotonic_ns())
        node.breaker.begin(ticket)
        return ticket

    async def models(self) -> tuple[str, ...]:
        """Raises: GatewayError as `node_for` when no worker is verified."""
        serving = await self._await_serving(self._nodes)
        return tuple(sorted({model for node in serving for model in node.models}))

    def knows(self, model: str) -> bool:
        """Whether a worker serves the model, or did when it was last verified."""
        return any(model in node.models for node in self._nodes)

    def left(self, node: WorkerNode, ticket: Ticket) -> None:
        """The request is over, whatever came of it; idempotent."""
        ticket.close()
        node.breaker.left(ticket)

    def failed(self, node: WorkerNode, ticket: Ticket | None = None) -> None:
        """The worker failed a request: look at it again now, keeping its lease meanwhile."""
        node.breaker.failed(self._clocks.monotonic_ns(), ticket)
        self._suspect(node)

    def succeeded(self, node: WorkerNode) -> None:
        """The worker answered a request to its end."""
        node.breaker.succeeded()

    def distrust(self, node: WorkerNode, ticket: Ticket | None = None) -> None:
        """The worker left a request unanswered: no other one before it has attested again."""
        node.is_silent = True
        node.breaker.failed(self._clocks.monotonic_ns(), ticket)
        self._suspect(node)

    def readiness(self) -> GatewayError | None:
        """None when at least one worker is verified and was reachable when last asked."""
        now = self._utc_now()
        if any(node.is_serving(now) and node.is_reachable for node in self._nodes):
            return None
        return refusal_of(self._nodes)

    def find(self, node_id: str) -> WorkerNode | None:
        """The worker of this id; one that attested it before one whose address is named so."""
        found = [node for node in self._nodes if node.id == node_id]
        return min(found, key=lambda node: node.replica is None, default=None)

    def _quickest(self, nodes: Sequence[WorkerNode], tokens: int) -> WorkerNode | None:
        return quickest(nodes, tokens=tokens, now_ns=self._clocks.monotonic_ns())

    def _serving(self, model: str) -> list[WorkerNode]:
        now = self._utc_now()
        return [node for node in self._nodes if model in node.models and node.is_serving(now)]

    async def _await_able(self, model: str) -> list[WorkerNode]:
        """Workers that serve the model again. Raises: GatewayError, of them or that none ever did.

        A worker that is verified now and does not name the model has given it up.
        """
        down = [node for node in self._nodes if model in node.models]
        if down:
            await self._await_serving(down)
        able = self._serving(model)
        if not able:
            raise GatewayError(
                "model_not_found", "The model does not exist or is not served here.", param="model"
            )
        return able

    async def _await_serving(self, nodes: Sequence[WorkerNode]) -> list[WorkerNode]:
        """Those of `nodes` that serve, once a refresh has helped; the first that does is enough.

        Raises: GatewayError when none does.
        """
        now = self._utc_now()
        if serving := [node for node in nodes if node.is_serving(now)]:
            return serving
        waits = {
            asyncio.ensure_future(self._refresh(node))
            for node in nodes
            if node.machine.state(now) is not LeaseState.QUARANTINED
            and (node.machine.is_refreshing or node.is_suspect or node.machine.should_refresh(now))
        }
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DISPATCH_WAIT_S):
                    while waits and not any(node.is_serving(self._utc_now()) for node in nodes):
                        _, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        now = self._utc_now()
        serving = [node for node in nodes if node.is_serving(now)]
        if not serving:
            raise refusal_of(nodes)
        return serving
