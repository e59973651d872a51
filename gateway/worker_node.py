"""What does the gateway know of one worker?  Changed only by the directory."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from attestation.channel import KeyConfig, Lease, LeaseMachine
from attestation.keyset import Mode
from attestation.receipt import Revocation
from gateway.facts import AttestFacts
from gateway.problems import GatewayError
from gateway.sealed import WorkerClient
from gateway.worker_load import Breaker, WorkerLoad, expected_ttft_ns

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
    key_configs: tuple[KeyConfig, ...] = ()  # all that it attested: the lease's, and the next one
    mode: Mode = "terminate"  # whom it takes requests from: a gateway, or clients through one

    def is_of_same_process(self, other: "Grant | None") -> bool:
        """Whether a key of this worker was the other's too: it did not begin anew since."""
        if other is None:
            return False
        known = {config.sha256 for config in (other.lease.key_config, *other.key_configs)}
        return self.lease.key_config.sha256 in known


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
    """One configured worker."""

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
    load: WorkerLoad = field(default_factory=WorkerLoad)
    breaker: Breaker = field(default_factory=Breaker)
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # the keeper looks again

    @property
    def id(self) -> str:
        """The name that the worker's own spans carry, as soon as it has attested it."""
        return self.name if self.replica is None else self.replica

    def is_serving(self, now: datetime) -> bool:
        return self.grant is not None and not self.is_silent and self.machine.usable(now)


def revocation_for(code: str) -> Revocation:
    """What a negative verdict does to streams that run: class B is of Evidence that merely ran out,
    and lets them end; any other class cuts them.
    """
    return Revocation(code=code, verdict_class="B" if code in RAN_OUT_CODES else "A")


def refusal_of(nodes: Sequence[WorkerNode]) -> GatewayError:
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


def quickest(nodes: Sequence[WorkerNode], *, tokens: int, now_ns: int) -> WorkerNode | None:
    """The one that is expected to answer such a prompt first; None when all breakers are open."""
    allowed = [node for node in nodes if node.breaker.allows(now_ns)]
    loads = [node.load for node in allowed]
    expected = expected_ttft_ns(loads, tokens=tokens, now_ns=now_ns)
    ranked = sorted(zip(expected, range(len(allowed)), strict=True))
    return allowed[ranked[0][1]] if ranked else None


async def abort(clients: Sequence[WorkerClient], *, after_s: float = 0.0) -> None:
    if after_s:
        await asyncio.sleep(after_s)
    for client in clients:
        await client.abort()
