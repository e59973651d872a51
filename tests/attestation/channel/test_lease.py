"""Leases: no request is ever sealed under a verdict that is over, negative or of an older epoch."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from attestation.channel.errors import ChannelMisuse, NoUsableLease
from attestation.channel.lease import (
    MAX_LEASE_LIFETIME,
    Lease,
    LeaseMachine,
    LeaseState,
    lease_not_after,
)
from tests.attestation.channel.keys import SERVER_KEY

START = datetime(2026, 1, 1, tzinfo=UTC)
RETRY = timedelta(seconds=5)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def make_lease(now: datetime = START, *, lifetime_s: float = 300, epoch: int = 0) -> Lease:
    return Lease(
        verdict_id="v-1",
        node="worker-0",
        evidence_digest="e" * 64,
        key_config=SERVER_KEY.config,
        keyset_digest="k" * 64,
        policy_sha256="p" * 64,
        epoch=epoch,
        not_before=now,
        not_after=now + seconds(lifetime_s),
        tier="affirming",
        simulated=False,
    )


def verified(now: datetime = START, lifetime_s: float = 300) -> LeaseMachine:
    machine = LeaseMachine(node="worker-0").begin_refresh()
    return machine.granted(make_lease(now, lifetime_s=lifetime_s), attempt=1, now=now)


def test_a_lease_is_used_to_its_end_and_not_beyond() -> None:
    machine = LeaseMachine(node="worker-0")
    assert machine.state(START) is LeaseState.UNVERIFIED
    assert machine.should_refresh(START)
    machine = verified()
    end = START + seconds(300)
    assert machine.state(START) is LeaseState.VERIFIED
    assert machine.require_lease(end - seconds(0.001)).verdict_id == "v-1"
    assert machine.state(end) is LeaseState.EXPIRED
    with pytest.raises(NoUsableLease) as caught:
        machine.require_lease(end)
    assert caught.value.code == "upstream_verification_failed"
    assert (caught.value.state, caught.value.reason_code) == ("expired", None)
    assert not machine.usable(START - seconds(1))  # a clock behind the verdict


def test_refresh_is_due_at_80_percent_or_earlier_by_jitter() -> None:
    assert make_lease().refresh_at() == START + seconds(240)
    assert make_lease().refresh_at(1.0) == START + seconds(210)
    machine = verified()
    assert not machine.should_refresh(START + seconds(239))
    assert machine.should_refresh(START + seconds(240))
    machine = machine.begin_refresh()
    assert machine.state(START + seconds(240)) is LeaseState.REFRESHING
    assert machine.usable(START + seconds(299))
    assert not machine.should_refresh(START + seconds(240))  # single flight
    with pytest.raises(ChannelMisuse):
        machine.begin_refresh()
    for jitter in (-0.1, 1.1):
        with pytest.raises(ValueError, match="jitter_ratio"):
            make_lease().refresh_at(jitter)


@pytest.mark.parametrize("back_s", [1, 60, 3600])
def test_a_clock_set_back_asks_for_a_new_lease_at_once(back_s: float) -> None:
    now = START - seconds(back_s)
    machine = verified()
    assert not machine.usable(now)
    assert machine.should_refresh(now)
    machine = machine.begin_refresh()
    failed = machine.refresh_failed(attempt=2, now=now, retry_after=seconds(0.5))
    assert not failed.should_refresh(now)  # no busy loop while the worker is out of reach
    assert failed.should_refresh(now + seconds(0.5))
    assert machine.granted(make_lease(now), attempt=2, now=now).usable(now)


def test_a_clock_set_back_does_not_prolong_a_quarantine() -> None:
    machine = verified().rejected("debug_enabled", now=START, retry_after=RETRY)
    assert not machine.should_refresh(START)
    assert machine.should_refresh(START - seconds(3600))


def test_a_short_verdict_does_not_make_a_busy_loop() -> None:
    machine = verified(lifetime_s=0)
    assert machine.state(START) is LeaseState.EXPIRED
    assert not machine.should_refresh(START)
    assert machine.should_refresh(START + seconds(1))


def test_an_unreachable_worker_keeps_its_lease() -> None:
    now = START + seconds(250)
    machine = verified().begin_refresh()
    machine = machine.refresh_failed(attempt=2, now=now, retry_after=RETRY)
    assert machine.state(now) is LeaseState.VERIFIED
    assert machine.usable(START + seconds(299))
    assert not machine.usable(START + seconds(300))
    assert not machine.should_refresh(now)
    assert machine.should_refresh(now + RETRY)


def test_a_negative_verdict_quarantines_at_once() -> None:
    now = START + seconds(10)
    machine = verified().begin_refresh().rejected("debug_enabled", now=now, retry_after=RETRY)
    assert machine.state(now) is LeaseState.QUARANTINED
    with pytest.raises(NoUsableLease) as caught:
        machine.require_lease(now)
    assert caught.value.reason_code == "debug_enabled"
    late = machine.granted(make_lease(now), attempt=2, now=now)
    assert late == machine  # the refresh in flight may have older Evidence
    assert machine.should_refresh(now + RETRY)
    machine = machine.begin_refresh()
    assert machine.state(now + RETRY) is LeaseState.QUARANTINED
    failed = machine.refresh_failed(attempt=3, now=now, retry_after=RETRY)
    assert failed.state(now) is LeaseState.QUARANTINED
    again = machine.granted(make_lease(now + RETRY), attempt=3, now=now + RETRY)
    assert again.state(now + RETRY) is LeaseState.VERIFIED


def test_a_new_epoch_stops_older_leases() -> None:
    machine = verified().begin_refresh().advance_epoch(1)
    assert machine.state(START) is LeaseState.UNVERIFIED
    assert machine.should_refresh(START)
    assert machine.granted(make_lease(epoch=0), attempt=2, now=START) == machine
    machine = machine.begin_refresh()
    old = machine.granted(make_lease(epoch=0), attempt=3, now=START)
    assert not old.usable(START)
    assert old.should_refresh(START)
    assert machine.granted(make_lease(epoch=1), attempt=3, now=START).usable(START)
    quarantined = machine.rejected("revoked", now=START, retry_after=RETRY).advance_epoch(2)
    assert quarantined.state(START) is LeaseState.QUARANTINED
    assert machine.advance_epoch(1) is machine
    with pytest.raises(ValueError, match="epoch"):
        machine.advance_epoch(0)


def test_the_earliest_end_is_the_lease_end() -> None:
    soon, later = START + seconds(60), START + seconds(6000)
    assert lease_not_after(START, []) == START + MAX_LEASE_LIFETIME
    assert lease_not_after(START, [later, soon]) == soon
    assert lease_not_after(START, [later], max_lifetime=seconds(30)) == START + seconds(30)
    assert lease_not_after(START, [], max_lifetime=seconds(9000)) == START + MAX_LEASE_LIFETIME


def test_what_a_lease_cannot_be() -> None:
    with pytest.raises(ValueError, match="time zone"):
        make_lease(datetime(2026, 1, 1))  # noqa: DTZ001 - the case under test
    with pytest.raises(ValueError, match="positive tier"):
        Lease(**{**as_arguments(make_lease()), "tier": "contraindicated"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="machine is for"):
        LeaseMachine(node="worker-1").granted(make_lease(), attempt=0, now=START)


def as_arguments(lease: Lease) -> dict[str, object]:
    return {name: getattr(lease, name) for name in Lease.__dataclass_fields__}


class LeaseRules(RuleBasedStateMachine):
    """Any order of events, checked against a model that knows only when the last grant ends."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.machine = LeaseMachine(node="worker-0")
        self.attempts_in_flight: set[int] = set()
        self.awaited: int | None = None
        self.good_until: datetime | None = None  # the model: usable before this, else never

    @rule(step_s=st.sampled_from([0.0, 0.5, 1.0, 30.0, 240.0, 400.0]))
    def time_passes(self, step_s: float) -> None:
        self.now += seconds(step_s)

    @precondition(lambda self: not self.machine.is_refreshing)
    @rule()
    def begin(self) -> None:
        self.machine = self.machine.begin_refresh()
        self.awaited = self.machine.attempt
        self.attempts_in_flight.add(self.machine.attempt)

    @precondition(lambda self: self.attempts_in_flight)
    @rule(data=st.data(), lifetime_s=st.sampled_from([0, 1, 300]), age=st.integers(0, 1))
    def grant(self, data: st.DataObject, lifetime_s: int, age: int) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.attempts_in_flight)))
        self.attempts_in_flight.discard(attempt)
        lease = make_lease(self.now, lifetime_s=lifetime_s, epoch=self.machine.epoch - age)
        self.machine = self.machine.granted(lease, attempt=attempt, now=self.now)
        if attempt == self.awaited:
            self.awaited = None
            if age == 0:
                self.good_until = lease.not_after

    @precondition(lambda self: self.attempts_in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.attempts_in_flight)))
        self.attempts_in_flight.discard(attempt)
        self.machine = self.machine.refresh_failed(attempt=attempt, now=self.now, retry_after=RETRY)
        if attempt == self.awaited:
            self.awaited = None

    @rule()
    def reject(self) -> None:
        self.machine = self.machine.rejected("revoked", now=self.now, retry_after=RETRY)
        self.good_until = self.awaited = None

    @rule()
    def advance(self) -> None:
        self.machine = self.machine.advance_epoch(self.machine.epoch + 1)
        self.good_until = self.awaited = None

    @invariant()
    def usable_exactly_when_the_model_says(self) -> None:
        expected = self.good_until is not None and self.now < self.good_until
        assert self.machine.usable(self.now) == expected
        state = self.machine.state(self.now)
        assert expected == (state in (LeaseState.VERIFIED, LeaseState.REFRESHING))
        assert self.machine.is_refreshing == (self.awaited is not None)
        if expected:
            lease = self.machine.require_lease(self.now)
            assert lease.epoch == self.machine.epoch
            assert lease.not_after == self.good_until


TestLeaseRules = LeaseRules.TestCase
