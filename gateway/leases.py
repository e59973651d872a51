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
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from attestation.channel import LeaseMachine, NoUsableLease
from attestation.receipt import Revocation
from gateway.facts import AttestFacts
from gateway.faults import describe_fault
from gateway.observe import Clocks
from gateway.problems import GatewayError
from gateway.worker_node import (
    Grant,
    NoVerdict,
    VerdictRefused,
    WorkerAttestation,
    WorkerNode,
    abort,
    refusal_of,
    revocation_for,
)

_log = logging.getLogger(__name__)

FIRST_RETRY: Final = timedelta(seconds=0.25)
LAST_RETRY: Final = timedelta(seconds=1)
REJECTED_RETRY: Final = timedelta(seconds=5)
REPLICA_MISMATCH: Final = "replica_mismatch"
DRAIN_S: Final = 30.0  # for streams of a lease that ran out
LEASE_EXPIRED: Final = "lease_expired"


class LeaseKeeper:
    """Holds a lease for every configured worker."""

    def __init__(
        self,
        nodes: Sequence[tuple[str, WorkerAttestation]],
        *,
        utc_now: Callable[[], datetime],
        clocks: Clocks,
        jitter: Callable[[], float],
        report: Callable[[AttestFacts], None],
        drain_s: float = DRAIN_S,
    ) -> None:
        self._nodes = [
            WorkerNode(name=name, attestation=attestation, machine=LeaseMachine(node=name))
            for name, attestation in nodes
        ]
        self._utc_now = utc_now
        self._clocks = clocks
        self._jitter = jitter
        self._report = report
        self._drain_s = drain_s
        self._epoch = 0
        self._keepers: dict[str, asyncio.Task[None]] | None = None  # by name, once it runs
        self._drains: set[asyncio.Task[None]] = set()

    @property
    def nodes(self) -> Sequence[WorkerNode]:
        return tuple(self._nodes)

    def start(self) -> None:
        self._keepers = {n.name: asyncio.ensure_future(self._keep(n)) for n in self._nodes}

    async def stop(self) -> None:
        refreshing = (node.refreshing for node in self._nodes if node.refreshing)
        tasks = [*(self._keepers or {}).values(), *self._drains, *refreshing]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for node in self._nodes:
            if node.grant is not None:
                await node.grant.client.retire()

    def add(self, name: str, attestation: WorkerAttestation) -> WorkerNode:
        """One more worker, of a name that none has; it is attested from now on."""
        machine = LeaseMachine(node=name, epoch=self._epoch)
        node = WorkerNode(name=name, attestation=attestation, machine=machine)
        self._nodes.append(node)
        if self._keepers is not None:
            self._keepers[name] = asyncio.ensure_future(self._keep(node))
        return node

    async def remove(self, node: WorkerNode) -> None:
        """It gets no more requests; its streams may end."""
        self._nodes.remove(node)
        if self._keepers is not None:
            self._keepers.pop(node.name).cancel()
        if node.refreshing is not None:
            await asyncio.wait({node.refreshing})  # requests wait for it too
        node.machine = LeaseMachine(node=node.name)
        await self._replace_grant(node, None)

    def require_lease(self, node: WorkerNode) -> Grant:
        """The grant to seal under, checked at this moment. Raises: GatewayError."""
        try:
            lease = node.machine.require_lease(self._utc_now())
        except NoUsableLease:
            raise refusal_of([node]) from None
        if node.grant is None or node.grant.lease != lease:
            raise refusal_of([node])
        return node.grant

    async def is_alive(self, node: WorkerNode, *, since: datetime) -> bool:
        """Whether the worker has attested since then, or gives its Evidence now."""
        if node.grant is None or node.grant.lease.not_before < since:
            await self._refresh(node)
        return node.is_reachable

    async def reattest(self, node: WorkerNode) -> None:
        """The worker does not know the key it was sealed to: take a new lease, once for all."""
        await self._refresh(node)

    def advance_epoch(self) -> int:
        """The new epoch: what is accepted has changed, so no older lease is sealed under.

        Each worker is asked anew. Streams run on until that verdict, which cuts them if negative.
        """
        self._epoch += 1
        for node in self._nodes:
            node.machine = node.machine.advance_epoch(self._epoch)
            node.wake.set()
        return self._epoch

    def _suspect(self, node: WorkerNode) -> None:
        node.is_suspect = True
        node.wake.set()

    async def _keep(self, node: WorkerNode) -> None:
        while True:
            node.wake.clear()
            await self._end_expired(node)
            if node.is_suspect or node.machine.should_refresh(self._utc_now()):
                await self._refresh(node)
            due = node.machine.refresh_due
            delay = FIRST_RETRY if due is None else max(due - self._utc_now(), timedelta())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay.total_seconds()):
                    await node.wake.wait()

    async def _refresh(self, node: WorkerNode) -> None:
        """Single-flight: whoever comes while one runs, waits for that one. Of a worker that was
        removed there is nothing more to learn.
        """
        if node not in self._nodes:
            return
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
            await self._revoke_grant(node, revocation_for(err.code))
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
                if not grant.is_of_same_process(node.grant):
                    node.breaker.succeeded()  # it began anew
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

    async def _end_expired(self, node: WorkerNode) -> None:
        """A lease that ran out because nobody could be asked: its streams may end, not go on."""
        grant = node.grant
        if grant is not None and self._utc_now() >= grant.lease.not_after:
            await self._revoke_grant(node, Revocation(code=LEASE_EXPIRED, verdict_class="B"))

    async def _revoke_grant(self, node: WorkerNode, revocation: Revocation) -> None:
        """Class A cuts the streams of this worker now, those of earlier grants included; class B
        gives them their time.
        """
        current = [] if node.grant is None else [node.grant.client]
        clients = [*node.leaving, *current]
        for client in clients:
            client.revocation = revocation
        await self._replace_grant(node, None)
        if revocation.verdict_class == "A":
            node.leaving = []
            await abort(clients)
        else:
            drain = asyncio.ensure_future(abort(clients, after_s=self._drain_s))
            self._drains.add(drain)
            drain.add_done_callback(self._drains.discard)

    def _record(self, node: WorkerNode, facts: AttestFacts) -> None:
        facts = replace(facts, worker_id=node.id)
        node.last_facts = facts
        self._report(facts)
