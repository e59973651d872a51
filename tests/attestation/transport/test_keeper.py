"""Is one verification shared by all who wait, and does a session end when it must?"""

import asyncio
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import pytest

from attestation.transport import EvidenceRefused, GatewayUnavailable, Session, SessionKeeper
from attestation.transport.keeper import QUARANTINE
from tests.support.patience import PATIENCE_S

START = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
TERM = timedelta(seconds=300)


@dataclass
class FakeVerifier:
    """Each call waits for `gate`, then gives a new session or raises `error`."""

    now: datetime = START
    error: Exception | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    num_calls: int = 0

    def verify(self) -> Session:
        self.num_calls += 1
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        # A session's verdict and keys are not looked at by the keeper.
        return Session(
            result=None,  # type: ignore[arg-type]
            gateway_result=None,  # type: ignore[arg-type]
            gateway=None,  # type: ignore[arg-type]
            sealed_to=None,  # type: ignore[arg-type]
            key_config=None,  # type: ignore[arg-type]
            not_before=self.now,
            not_after=self.now + TERM,
        )

    def utc_now(self) -> datetime:
        return self.now


@pytest.fixture
def verifier() -> FakeVerifier:
    verifier = FakeVerifier()
    verifier.gate.set()
    return verifier


@pytest.fixture
def keeper(verifier: FakeVerifier) -> SessionKeeper:
    return SessionKeeper(verifier.verify, utc_now=verifier.utc_now)


def test_the_first_request_waits_and_the_next_ones_do_not(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    assert keeper.session is None
    first = keeper.require()
    assert keeper.require() is first
    assert verifier.num_calls == 1


def test_threads_and_loops_wait_for_the_same_one(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    verifier.gate.clear()
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(keeper.require) for _ in range(4)]
        on_loop = pool.submit(lambda: asyncio.run(keeper.arequire()))
        while verifier.num_calls == 0:
            pass
        verifier.gate.set()
        sessions = {id(future.result(PATIENCE_S)) for future in [*waiting, on_loop]}
    assert verifier.num_calls == 1
    assert len(sessions) == 1


def test_a_session_ends_with_its_term(keeper: SessionKeeper, verifier: FakeVerifier) -> None:
    first = keeper.require()
    verifier.now += TERM
    assert keeper.session is None
    assert keeper.require() is not first


def test_a_clock_that_is_put_back_ends_it_too(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    keeper.require()
    verifier.now -= timedelta(seconds=1)
    assert keeper.session is None


def test_who_asks_for_another_than_an_old_one_gets_the_one_that_is_there(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    old = keeper.require()
    new = keeper.renew(than=old).result()
    assert new is not old
    assert keeper.renew(than=old).result() is new  # late, and not a third verification
    assert verifier.num_calls == 2


def test_a_failed_renewal_leaves_what_is_there_to_its_end(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    old = keeper.require()
    verifier.error = GatewayUnavailable("evidence_unavailable", "nobody", reason="no_answer")
    with pytest.raises(GatewayUnavailable):
        keeper.renew(than=old).result()
    assert keeper.session is old
    verifier.now += TERM
    with pytest.raises(GatewayUnavailable):
        keeper.require()


def test_a_negative_verdict_ends_it_at_once(keeper: SessionKeeper, verifier: FakeVerifier) -> None:
    old = keeper.require()
    verifier.error = EvidenceRefused("debug_enabled", "refused", None)
    with pytest.raises(EvidenceRefused):
        keeper.renew(than=old).result()
    assert keeper.session is None


def test_a_refusal_stands_for_a_while_without_another_question(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    verifier.error = EvidenceRefused("debug_enabled", "refused", None)
    for _ in range(3):
        with pytest.raises(EvidenceRefused):
            keeper.require()
    assert verifier.num_calls == 1
    verifier.error = None
    verifier.now += QUARANTINE
    assert keeper.require() is keeper.session


async def test_a_waiter_that_gives_up_takes_nothing_from_the_others(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    verifier.gate.clear()
    impatient = asyncio.ensure_future(keeper.arequire())
    patient = asyncio.ensure_future(keeper.arequire())
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    verifier.gate.set()
    assert await patient is keeper.session
    assert verifier.num_calls == 1


def test_who_wants_to_know_is_told_of_each_refusal(verifier: FakeVerifier) -> None:
    refused: SimpleQueue[EvidenceRefused] = SimpleQueue()
    keeper = SessionKeeper(verifier.verify, utc_now=verifier.utc_now, on_refused=refused.put)
    first = keeper.require()
    verifier.error = EvidenceRefused("debug_enabled", "refused", None)
    with pytest.raises(EvidenceRefused):
        keeper.renew(than=first).result()
    assert refused.get(timeout=PATIENCE_S) is verifier.error


def test_a_listener_that_fails_keeps_nobody_waiting(
    verifier: FakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_refused: EvidenceRefused) -> None:
        raise RuntimeError("the loop is closed")

    unhandled: SimpleQueue[threading.ExceptHookArgs] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", unhandled.put)
    keeper = SessionKeeper(verifier.verify, utc_now=verifier.utc_now, on_refused=failing)
    verifier.error = EvidenceRefused("debug_enabled", "refused", None)
    with pytest.raises(EvidenceRefused):
        keeper.renew(than=None).result(PATIENCE_S)
    assert unhandled.get(timeout=PATIENCE_S).exc_type is RuntimeError


def test_each_caller_gets_a_refusal_of_its_own(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    """One that all shared would keep what the callers' frames hold: prompts."""
    verifier.error = EvidenceRefused("debug_enabled", "refused", None)
    seen = []
    for _ in range(3):
        with pytest.raises(EvidenceRefused) as caught:
            keeper.require()
        seen.append(caught.value)
    assert len({id(err) for err in [*seen, verifier.error]}) == 4
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(verifier.error.__traceback__)]
    assert frames == ["_run", "verify"]


def test_a_clock_that_is_put_back_ends_a_refusal_too(
    keeper: SessionKeeper, verifier: FakeVerifier
) -> None:
    verifier.error = EvidenceRefused("debug_enabled", "refused", None)
    with pytest.raises(EvidenceRefused):
        keeper.require()
    verifier.error = None
    verifier.now -= timedelta(hours=1)
    assert keeper.require() is keeper.session


def test_it_is_time_for_the_next_at_four_fifths(keeper: SessionKeeper) -> None:
    assert keeper.require().refresh_due == START + TERM * 0.8
