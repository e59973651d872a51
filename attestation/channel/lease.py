"""Leases: may a request be sealed to this worker now, and to which key?

A verdict on a worker's Evidence is good for a while, not for ever. ``Lease`` is that while;
``LeaseMachine`` is what the gateway knows about one worker. Both are values: a transition
returns the next machine, and only the caller has a clock.

::

    unverified --begin_refresh, granted--> verified <--granted-- refreshing
    verified   --begin_refresh--> refreshing --refresh_failed--> verified
    any        --not_after passes--> expired
    any        --rejected--> quarantined --begin_refresh, granted--> verified
    any        --advance_epoch--> unverified (a quarantine stays)
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Self

from attestation.channel.errors import ChannelMisuse, NoUsableLease
from attestation.channel.keyconfig import KeyConfig

MAX_LEASE_LIFETIME = timedelta(seconds=300)
REFRESH_RATIO = 0.8  # of the lifetime, without jitter
REFRESH_JITTER_RATIO = 0.1  # full jitter refreshes at 0.7 of the lifetime
MIN_REFRESH_INTERVAL = timedelta(seconds=1)  # a short verdict must not turn into a busy loop


class LeaseState(StrEnum):
    """What the gateway knows about a worker."""

    UNVERIFIED = "unverified"
    VERIFIED = "verified"
    REFRESHING = "refreshing"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A positive verdict with its term; digests are hex, ``code`` is a warning's class.

    Raises: ValueError for a time without a zone.
    """

    verdict_id: str
    node: str
    evidence_digest: str
    key_config: KeyConfig
    keyset_digest: str
    policy_sha256: str
    epoch: int
    not_before: datetime
    not_after: datetime
    tier: Literal["affirming", "warning"]
    simulated: bool
    code: str | None = None

    def __post_init__(self) -> None:
        _require_zone(self.not_before, self.not_after)
        if self.tier not in ("affirming", "warning"):
            raise ValueError(f"a lease needs a positive tier, got {self.tier}")

    def is_current(self, now: datetime) -> bool:
        """Whether ``not_before <= now < not_after``; ask again after queueing and per retry."""
        return self.not_before <= now < self.not_after

    def refresh_at(self, jitter_ratio: float = 0.0) -> datetime:
        """80 % of the term, less up to 10 % of it by ``jitter_ratio`` (0..1)."""
        if not 0.0 <= jitter_ratio <= 1.0:
            raise ValueError(f"jitter_ratio: want 0..1, got {jitter_ratio}")
        used = REFRESH_RATIO - REFRESH_JITTER_RATIO * jitter_ratio
        return self.not_before + used * (self.not_after - self.not_before)


def lease_not_after(
    now: datetime, bounds: Iterable[datetime], *, max_lifetime: timedelta = MAX_LEASE_LIFETIME
) -> datetime:
    """The earliest of ``now`` + ``max_lifetime`` and the ends of all that the verdict rests on.

    ``bounds``: the keyset's, certificates', CRLs' and TCB's not_after or nextUpdate.
    """
    ends = [now + min(max_lifetime, MAX_LEASE_LIFETIME), *bounds]
    _require_zone(*ends)
    return min(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMachine:
    """One worker's verification state.

    ``attempt`` numbers refreshes: the outcome of one that is no longer awaited changes nothing.
    ``refresh_due`` is when to begin the next; None means now. ``quarantine_code`` is the class of
    the negative verdict, and no lease outlives one.
    """

    node: str
    epoch: int = 0
    lease: Lease | None = None
    attempt: int = 0
    is_refreshing: bool = False
    refresh_due: datetime | None = None
    quarantine_code: str | None = None

    def state(self, now: datetime) -> LeaseState:
        """The state at ``now``."""
        if self.quarantine_code is not None:
            return LeaseState.QUARANTINED
        if self.lease is None:
            return LeaseState.UNVERIFIED
        if now >= self.lease.not_after:
            return LeaseState.EXPIRED
        return LeaseState.REFRESHING if self.is_refreshing else LeaseState.VERIFIED

    def usable(self, now: datetime) -> bool:
        """Whether a request may be sealed to this worker at ``now``."""
        return (
            self.quarantine_code is None
            and self.lease is not None
            and self.lease.epoch == self.epoch
            and self.lease.is_current(now)
        )

    def require_lease(self, now: datetime) -> Lease:
        """The lease to seal under.

        Raises: NoUsableLease, with the state and the code of a negative verdict.
        """
        if self.lease is None or not self.usable(now):
            raise NoUsableLease(self.node, self.state(now).value, self.quarantine_code)
        return self.lease

    def should_refresh(self, now: datetime) -> bool:
        """Whether to begin a refresh: none in flight, and one is due or the clock was set back."""
        if self.is_refreshing:
            return False
        if self.refresh_due is None or now >= self.refresh_due:
            return True
        return self._was_set_before(now) or self.refresh_due - now > MAX_LEASE_LIFETIME

    def _was_set_before(self, now: datetime) -> bool:
        """The clock shows a time before the lease began, and no refresh was tried since."""
        lease, due = self.lease, self.refresh_due
        if lease is None or due is None:
            return False
        return now < lease.not_before <= due - MIN_REFRESH_INTERVAL

    def begin_refresh(self) -> Self:
        """A refresh starts; its outcome is reported with the new ``attempt``.

        Raises: ChannelMisuse while one is in flight.
        """
        if self.is_refreshing:
            raise ChannelMisuse(f"worker {self.node}: a refresh is in flight")
        return replace(self, is_refreshing=True, attempt=self.attempt + 1)

    def granted(
        self, lease: Lease, *, attempt: int, now: datetime, jitter_ratio: float = 0.0
    ) -> Self:
        """A positive verdict: the lease replaces the old one and ends a quarantine.

        A lease of an older epoch, or of an attempt that is no longer awaited, changes no lease.

        Raises: ValueError for another node's lease.
        """
        if lease.node != self.node:
            raise ValueError(f"lease is for {lease.node}, machine is for {self.node}")
        if not self._awaits(attempt):
            return self
        if lease.epoch != self.epoch:
            return replace(self, is_refreshing=False, refresh_due=None)
        due = max(lease.refresh_at(jitter_ratio), now + MIN_REFRESH_INTERVAL)
        return replace(
            self, lease=lease, is_refreshing=False, refresh_due=due, quarantine_code=None
        )

    def refresh_failed(self, *, attempt: int, now: datetime, retry_after: timedelta) -> Self:
        """The worker could not be asked: what is held stays to its end; try again later."""
        if not self._awaits(attempt):
            return self
        return replace(self, is_refreshing=False, refresh_due=now + retry_after)

    def rejected(self, code: str, *, now: datetime, retry_after: timedelta) -> Self:
        """A negative verdict, by whichever attempt or none: quarantined at once.

        A refresh in flight is no longer awaited, for its Evidence may be older.
        """
        return replace(
            self,
            lease=None,
            is_refreshing=False,
            refresh_due=now + retry_after,
            quarantine_code=code,
        )

    def advance_epoch(self, epoch: int) -> Self:
        """Policy or deny list changed: leases of older epochs stop, a refresh is due now.

        Raises: ValueError for an older epoch.
        """
        if epoch < self.epoch:
            raise ValueError(f"epoch: at {self.epoch}, got {epoch}")
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, lease=None, is_refreshing=False, refresh_due=None)

    def _awaits(self, attempt: int) -> bool:
        return self.is_refreshing and attempt == self.attempt


def _require_zone(*times: datetime) -> None:
    if any(time.tzinfo is None for time in times):
        raise ValueError("lease times carry a time zone")
