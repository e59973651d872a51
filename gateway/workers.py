"""Which worker may be sealed to now?  One lease per worker, taken by live attestation.

Transport trouble keeps a lease to its end, a negative verdict ends it at once; a worker that left a
request unanswered keeps its lease, but gets no other request before it has attested again.
Appraisal runs in a thread, because it verifies a dozen signatures. Each lease has its own
connection pool: a connection opened under one verdict never carries a request of another.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
RAN_OUT_CODES: Final = frozenset(
    {"certificate_time", "collateral_expired", "crl_expired", "keyset_expired"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a successful attestation gives: the lease, its connections, the models behind it."""

    lease: Lease
    client: WorkerClient = field(repr=False)
    models: tuple[str, ...]
    facts: AttestFacts


class VerdictRefused(Exception):
    """The worker's Evidence was appraised, and refused with `code`."""

    def __init__(self, code: str, facts: AttestFacts) -> None:
        super().__init__(f"the worker's evidence was refused: {code}")
        self.code = code
        self.facts = facts


class WorkerAttestation(Protocol):
    """Attests the worker behind one address."""

    async def attest(self, *, node: str, epoch: int) -> Grant:
        """Raises: VerdictRefused; GatewayError when the worker could not be asked."""
        ...

    async def evidence(self, nonce_hex: str) -> bytes:
        """The worker's bundle for a client's nonce, as it came. Raises: GatewayError."""
        ...


@dataclass(slots=True, kw_only=True)
class WorkerNode:
    """One configured worker; changed only by the directory."""

    id: str
    attestation: WorkerAttestation
    machine: LeaseMachine
    grant: Grant | None = None
    leaving: list[WorkerClient] = field(default_factory=list)  # of earlier grants, still streaming
    num_failures: int = 0  # transport failures since the worker last answered
    failure_code: str | None = None
    last_facts: AttestFacts | None = None
    refreshing: "asyncio.Task[None] | None" = None
    is_suspect: bool = False
    is_silent: bool = False  # it left a request unanswered and has not attested since
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # the keeper looks again

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
            WorkerNode(id=node, attestation=attestation, machine=LeaseMachine(node=node))
            for node, attestation in nodes
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
        serving = self._serving() or await self._await_serving()
        able = [node for node in serving if node.grant and model in node.grant.models]
        if not able:
            raise GatewayError(
                "model_not_found", "The model does not exist or is not served here.", param="model"
            )
        return min(able, key=lambda node: node.grant.client.num_open if node.grant else 0)

    async def models(self) -> tuple[str, ...]:
        """Raises: GatewayError as `node_for` when no worker is verified."""
        serving = self._serving() or await self._await_serving()
        return tuple(sorted({m for node in serving if node.grant for m in node.grant.models}))

    def require_lease(self, node: WorkerNode) -> Grant:
        """The grant to seal under, checked at this moment. Raises: GatewayError."""
        try:
            lease = node.machine.require_lease(self._utc_now())
        except NoUsableLease:
            raise self._refusal() from None
        if node.grant is None or node.grant.lease != lease:
            raise self._refusal()
        return node.grant

    def suspect(self, node: WorkerNode) -> None:
        """The worker failed a request: look at it again now, keeping its lease meanwhile."""
        node.is_suspect = True
        node.wake.set()

    async def is_alive(self, node: WorkerNode, *, since: datetime) -> bool:
        """Whether the worker has attested since then, or does so now."""
        if node.grant is None or node.grant.lease.not_before < since:
            await self._refresh(node)
        return node.num_failures == 0

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
        if any(node.is_serving(now) and node.num_failures == 0 for node in self._nodes):
            return None
        return self._refusal()

    def find(self, node_id: str) -> WorkerNode | None:
        return next((node for node in self._nodes if node.id == node_id), None)

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
                self._fail(node, attempt, started_ns, "internal_error")
        finally:
            node.wake.set()  # whoever asked, the keeper must learn when the next one is due

    async def _attest_once(self, node: WorkerNode, attempt: int, started_ns: int) -> None:
        try:
            grant = await node.attestation.attest(node=node.id, epoch=node.machine.epoch)
        except VerdictRefused as err:
            node.machine = node.machine.rejected(
                err.code, now=self._utc_now(), retry_after=REJECTED_RETRY
            )
            _log.error("worker quarantined", extra={"worker": node.id, "code": err.code})
            await self._revoke_grant(node, err.code)
            self._record(node, err.facts)
        except GatewayError as err:
            self._fail(node, attempt, started_ns, err.code)
        else:
            now = self._utc_now()
            node.machine = node.machine.granted(
                grant.lease, attempt=attempt, now=now, jitter_ratio=self._jitter()
            )
            if node.machine.lease is grant.lease:
                await self._replace_grant(node, grant)
                node.num_failures, node.failure_code = 0, None
                node.is_silent = False
            else:
                await grant.client.retire()
            self._record(node, grant.facts)

    def _fail(self, node: WorkerNode, attempt: int, started_ns: int, code: str) -> None:
        retry_after = min(FIRST_RETRY * 2 ** min(node.num_failures, 10), LAST_RETRY)
        node.num_failures += 1
        node.failure_code = code
        node.machine = node.machine.refresh_failed(
            attempt=attempt, now=self._utc_now(), retry_after=retry_after
        )
        if node.num_failures == 1:
            _log.warning("worker cannot be attested", extra={"worker": node.id, "code": code})
        self._report(
            AttestFacts(
                worker_id=node.id,
                started_ns=started_ns,
                ended_ns=self._clocks.monotonic_ns(),
                error_code=code,
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
        node.last_facts = facts
        self._report(facts)

    # -- choosing --------------------------------------------------------------------------

    def _serving(self) -> list[WorkerNode]:
        now = self._utc_now()
        return [node for node in self._nodes if node.is_serving(now)]

    async def _await_serving(self) -> list[WorkerNode]:
        """Workers that serve once a refresh has helped; the first that does is enough."""
        now = self._utc_now()
        waits = {
            asyncio.ensure_future(self._refresh(node))
            for node in self._nodes
            if node.machine.state(now) is not LeaseState.QUARANTINED
            and (node.machine.is_refreshing or node.is_suspect or node.machine.should_refresh(now))
        }
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DISPATCH_WAIT_S):
                    while waits and not self._serving():
                        _, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        serving = self._serving()
        if not serving:
            raise self._refusal()
        return serving

    def _refusal(self) -> GatewayError:
        codes = [node.machine.quarantine_code for node in self._nodes]
        rejected = next((code for code in codes if code is not None), None)
        if rejected is not None:
            return GatewayError(
                "upstream_verification_failed",
                f"No worker passed attestation: {rejected}.",
                detail_code=rejected,
            )
        failed = next((node.failure_code for node in self._nodes if node.failure_code), None)
        cause = f": {failed}" if failed is not None else ""
        return GatewayError(
            "upstream_unavailable", f"No verified worker can be reached{cause}.", detail_code=failed
        )
