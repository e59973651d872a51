"""Which worker may be sealed to now?  One lease per worker, taken by live attestation.

Transport trouble, a vendor's included, keeps a lease to its end, a negative verdict ends it at
once; a worker that left a request unanswered keeps its lease, but gets no other request before it
has attested again.
Appraisal runs in a thread, because it verifies a dozen signatures. Each lease has its own
connection pool: a connection opened under one verdict never carries a request of another.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from attestation.channel import Lease, LeaseMachine, LeaseState, NoUsableLease
from gateway.faults import describe_fault
from gateway.observe import AttestFacts, Clocks
from gateway.problems import GatewayError
from gateway.sealed import WorkerClient

_log = logging.getLogger(__name__)

FIRST_RETRY: Final = timedelta(seconds=0.25)
LAST_RETRY: Final = timedelta(seconds=1)
REJECTED_RETRY: Final = timedelta(seconds=5)
DISPATCH_WAIT_S: Final = 5.0  # how long a request waits for a worker that has no lease
REPLICA_MISMATCH: Final = "replica_mismatch"
RAN_OUT_CODES: Final = frozenset(
    {"certificate_time", "collateral_expired", "crl_expired", "keyset_expired"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a successful attestation gives: the lease, its connections, who and what is behind it.

    `replica` is the name in the attested keyset.
    """

    lease: Lease
    client: WorkerClient = field(repr=False)
    replica: str
    models: tuple[str, ...]
    facts: AttestFacts


class VerdictRefused(Exception):
    """The worker's Evidence was appraised, and refused with `code`."""

    def __init__(self, code: str, facts: AttestFacts) -> None:
        super().__init__(f"the worker's evidence was refused: {code}")
        self.code = code
        self.facts = facts


class NoVerdict(GatewayError):
    """The worker gave its Evidence, but what a verdict hangs on cannot be had now."""


class WorkerAttestation(Protocol):
    """Attests the worker behind one address."""

    async def attest(self, *, node: str, epoch: int) -> Grant:
        """Raises: VerdictRefused; NoVerdict; GatewayError when the worker could not be asked."""
        ...

    async def evidence(self, nonce_hex: str) -> bytes:
        """The worker's bundle for a client's nonce, as it came. Raises: GatewayError."""
        ...


@dataclass(slots=True, kw_only=True)
class WorkerNode:
    """One configured worker; changed only by the directory."""

    name: str  # of its address
    attestation: WorkerAttestation
    machine: LeaseMachine
    replica: str | None = None  # as it attested first; it stays the same from then on
    models: tuple[str, ...] = ()  # of the last grant, which may have ended
    grant: Grant | None = None
    leaving: list[WorkerClient] = field(default_factory=list)  # of earlier grants, still streaming
    num_failures: int = 0  # attempts without a verdict since the last grant
    is_reachable: bool = True  # it gave its Evidence when it was last asked
    failure_code: str | None = None
    last_facts: AttestFacts | None = None
    refreshing: "asyncio.Task[None] | None" = None
    is_suspect: bool = False
    is_silent: bool = False  # it left a request unanswered and has not attested since
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # the keeper looks again

    @property
    def id(self) -> str:
        """The name that the worker's own spans carry, as soon as it has attested it."""
        return self.name if self.replica is None else self.replica

    def is_serving(self, now: datetime) -> bool:
        return self.grant is not None and not self.is_silent and self.machine.usable(now)


class WorkerDirectory:
    """Holds a lease for every configured worker and hands out the best one."""

    def __init__(
        self,
        nodes: Sequence[tuple[str, WorkerAttestation]],
        *,
        utc_now: Callable[[], datetime],
        clocks: Clocks,
        jitter: Callable[[], float],
        report: Callable[[AttestFacts], None],
    ) -> None:
        self._nodes = [
            WorkerNode(name=name, attestation=attestation, machine=LeaseMachine(node=name))
            for name, attestation in nodes
        ]
        self._utc_now = utc_now
        self._clocks = clocks
        self._jitter = jitter
        self._report = report
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def nodes(self) -> Sequence[WorkerNode]:
        return tuple(self._nodes)

    def start(self) -> None:
        self._keepers = [asyncio.ensure_future(self._keep(node)) for node in self._nodes]

    async def stop(self) -> None:
        tasks = [*self._keepers, *(node.refreshing for node in self._nodes if node.refreshing)]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for node in self._nodes:
            if node.grant is not None:
                await node.grant.client.retire()

    async def node_for(self, model: str) -> WorkerNode:
        """A worker with a live lease that serves `model`, the least busy first.

        Raises: GatewayError `model_not_found`, `upstream_verification_failed`,
        `upstream_unavailable`.
        """
        able = self._serving(model)
        if not able:
            await self._await_serving(self._nodes)
            able = self._serving(model) or await self._await_able(model)
        return min(able, key=lambda node: node.grant.client.num_open if node.grant else 0)

    async def models(self) -> tuple[str, ...]:
        """Raises: GatewayError as `node_for` when no worker is verified."""
        serving = await self._await_serving(self._nodes)
        return tuple(sorted({model for node in serving for model in node.models}))

    def knows(self, model: str) -> bool:
        """Whether a worker serves the model, or did when it was last verified."""
        return any(model in node.models for node in self._nodes)

    def require_lease(self, node: WorkerNode) -> Grant:
        """The grant to seal under, checked at this moment. Raises: GatewayError."""
        try:
            lease = node.machine.require_lease(self._utc_now())
        except NoUsableLease:
            raise _refusal([node]) from None
        if node.grant is None or node.grant.lease != lease:
            raise _refusal([node])
        return node.grant

    def suspect(self, node: WorkerNode) -> None:
        """The worker failed a request: look at it again now, keeping its lease meanwhile."""
        node.is_suspect = True
        node.wake.set()

    async def is_alive(self, node: WorkerNode, *, since: datetime) -> bool:
        """Whether the worker has attested since then, or gives its Evidence now."""
        if node.grant is None or node.grant.lease.not_before < since:
            await self._refresh(node)
        return node.is_reachable

    def distrust(self, node: WorkerNode) -> None:
        """The worker left a request unanswered: no other one before it has attested again."""
        node.is_silent = True
        self.suspect(node)

    async def reattest(self, node: WorkerNode) -> None:
        """The worker does not know the key it was sealed to: take a new lease, once for all."""
        await self._refresh(node)

    def readiness(self) -> GatewayError | None:
        """None when at least one worker is verified and was reachable when last asked."""
        now = self._utc_now()
        if any(node.is_serving(now) and node.is_reachable for node in self._nodes):
            return None
        return _refusal(self._nodes)

    def find(self, node_id: str) -> WorkerNode | None:
        """The worker of this id; one that attested it before one whose address is named so."""
        found = [node for node in self._nodes if node.id == node_id]
        return min(found, key=lambda node: node.replica is None, default=None)

    # -- keeping leases --------------------------------------------------------------------

    async def _keep(self, node: WorkerNode) -> None:
        while True:
            node.wake.clear()
            if node.is_suspect or node.machine.should_refresh(self._utc_now()):
                await self._refresh(node)
            due = node.machine.refresh_due
            delay = FIRST_RETRY if due is None else max(due - self._utc_now(), timedelta())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay.total_seconds()):
                    await node.wake.wait()

    async def _refresh(self, node: WorkerNode) -> None:
        """Single-flight: whoever comes while one runs, waits for that one."""
        if node.refreshing is None or node.refreshing.done():
            node.is_suspect = False
            node.machine = node.machine.begin_refresh()
            node.refreshing = asyncio.ensure_future(self._attest(node, node.machine.attempt))
        await asyncio.shield(node.refreshing)

    async def _attest(self, node: WorkerNode, attempt: int) -> None:
        started_ns = self._clocks.monotonic_ns()
        try:
            await self._attest_once(node, attempt, started_ns)
        except Exception as err:  # the keeper's edge: it must not die, and nothing is granted
            _log.error("attestation failed: %s", describe_fault(err), extra={"worker": node.id})
            if node.machine.is_refreshing:
                node.is_reachable = False
                self._fail(node, attempt, started_ns, "internal_error")
        finally:
            node.wake.set()  # whoever asked, the keeper must learn when the next one is due

    async def _attest_once(self, node: WorkerNode, attempt: int, started_ns: int) -> None:
        try:
            grant = await node.attestation.attest(node=node.name, epoch=node.machine.epoch)
            await self._require_same_replica(node, grant)
        except VerdictRefused as err:
            node.is_reachable = True
            node.machine = node.machine.rejected(
                err.code, now=self._utc_now(), retry_after=REJECTED_RETRY
            )
            _log.error("worker quarantined", extra={"worker": node.id, "code": err.code})
            await self._revoke_grant(node, err.code)
            self._record(node, err.facts)
        except GatewayError as err:
            code = err.detail_code or err.code
            node.is_reachable = isinstance(err, NoVerdict)
            self._fail(node, attempt, started_ns, code, reason=err.message)
        else:
            now = self._utc_now()
            node.machine = node.machine.granted(
                grant.lease, attempt=attempt, now=now, jitter_ratio=self._jitter()
            )
            if node.machine.lease is grant.lease:
                node.replica, node.models = grant.replica, grant.models
                await self._replace_grant(node, grant)
                node.num_failures, node.failure_code = 0, None
                node.is_reachable, node.is_silent = True, False
            else:
                await grant.client.retire()
            self._record(node, grant.facts)

    async def _require_same_replica(self, node: WorkerNode, grant: Grant) -> None:
        """A worker stays who it was, and nobody else is. Raises: VerdictRefused."""
        holder = next((n for n in self._nodes if n.replica == grant.replica), node)
        if node.replica in (None, grant.replica) and holder is node:
            return
        await grant.client.abort()
        raise VerdictRefused(REPLICA_MISMATCH, replace(grant.facts, error_code=REPLICA_MISMATCH))

    def _fail(
        self, node: WorkerNode, attempt: int, started_ns: int, code: str, *, reason: str = ""
    ) -> None:
        retry_after = min(FIRST_RETRY * 2 ** min(node.num_failures, 10), LAST_RETRY)
        node.num_failures += 1
        node.failure_code = code
        node.machine = node.machine.refresh_failed(
            attempt=attempt, now=self._utc_now(), retry_after=retry_after
        )
        if node.num_failures == 1:
            _log.warning(
                "worker cannot be attested: %s",
                reason or code,
                extra={"worker": node.id, "code": code},
            )
        self._report(
            AttestFacts(
                worker_id=node.id,
                started_ns=started_ns,
                ended_ns=self._clocks.monotonic_ns(),
                error_code=code,
                has_verdict=False,
            )
        )

    async def _replace_grant(self, node: WorkerNode, grant: Grant | None) -> None:
        """Streams of the old grant run on until they end."""
        old, node.grant = node.grant, grant
        if old is not None:
            node.leaving = [client for client in (*node.leaving, old.client) if client.num_open]
            await old.client.retire()

    async def _revoke_grant(self, node: WorkerNode, code: str) -> None:
        """Evidence that merely ran out lets running streams end; any other refusal cuts them,
        those of earlier grants included: they are of the same worker.
        """
        await self._replace_grant(node, None)
        if code not in RAN_OUT_CODES:
            cut, node.leaving = node.leaving, []
            for client in cut:
                await client.abort()

    def _record(self, node: WorkerNode, facts: AttestFacts) -> None:
        facts = replace(facts, worker_id=node.id)
        node.last_facts = facts
        self._report(facts)

    # -- choosing --------------------------------------------------------------------------

    def _serving(self, model: str | None = None) -> list[WorkerNode]:
        now = self._utc_now()
        serving = [node for node in self._nodes if node.is_serving(now)]
        return [node for node in serving if model is None or model in node.models]

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
            raise _refusal(nodes)
        return serving


def _refusal(nodes: Sequence[WorkerNode]) -> GatewayError:
    """Why none of `nodes` can be sealed to."""
    codes = [node.machine.quarantine_code for node in nodes]
    rejected = next((code for code in codes if code is not None), None)
    if rejected is not None:
        return GatewayError(
            "upstream_verification_failed",
            f"No worker passed attestation: {rejected}.",
            detail_code=rejected,
        )
    failed = next((node.failure_code for node in nodes if node.failure_code), None)
    cause = f": {failed}" if failed is not None else ""
    return GatewayError(
        "upstream_unavailable", f"No verified worker can be reached{cause}.", detail_code=failed
    )
