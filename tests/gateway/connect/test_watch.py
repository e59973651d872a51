"""Is the gateway verified anew before its verdict ends, and is the person told what matters?"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from attestation.transport import EvidenceRefused, GatewayUnavailable, Session, SessionKeeper
from gateway.connect import watch
from gateway.connect.watch import Watch
from tests.support.patience import PATIENCE_S


@pytest.fixture
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.connect.watch.FIRST_RETRY", timedelta(seconds=0.05))


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the watch waits in real time


@dataclass
class FakeVerifier:
    """Sessions of `term`, or `errors` first, one a call."""

    term: timedelta
    errors: list[Exception] = field(default_factory=list)
    num_calls: int = 0

    def verify(self) -> Session:
        self.num_calls += 1
        if self.errors:
            raise self.errors.pop(0)
        at = now()
        return Session(
            result=None,  # type: ignore[arg-type]
            gateway_result=None,  # type: ignore[arg-type]
            gateway=None,  # type: ignore[arg-type]
            sealed_to=None,  # type: ignore[arg-type]
            key_config=None,  # type: ignore[arg-type]
            not_before=at,
            not_after=at + self.term,
        )


async def watched(
    verifier: FakeVerifier,
    until: Callable[[list[str]], bool],
    errors: Sequence[Exception] = (),
) -> list[str]:
    """What is told until `until` of it is true; `errors` come once a first session is there."""
    told: list[str] = []
    keeper = SessionKeeper(verifier.verify, utc_now=now)
    await keeper.arequire()
    verifier.errors += errors
    task = asyncio.ensure_future(Watch(keeper=keeper, utc_now=now, tell=told.append).run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not until(told):
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
    return told


async def test_it_verifies_before_the_verdict_ends_and_says_nothing() -> None:
    verifier = FakeVerifier(term=timedelta(seconds=0.2))
    assert await watched(verifier, lambda _told: verifier.num_calls >= 3) == []


@pytest.mark.usefixtures("_soon_again")
async def test_silence_is_told_once_and_its_end_too() -> None:
    silent = [
        GatewayUnavailable("evidence_unavailable", "no answer", reason="no_answer")
        for _ in range(2)
    ]
    verifier = FakeVerifier(term=timedelta(seconds=0.1))
    told = await watched(verifier, lambda said: len(said) >= 2, list(silent))
    assert "cannot verify now" in told[0]
    assert told[1].startswith("verified again")


@pytest.mark.usefixtures("_soon_again")
async def test_an_unexpected_error_is_told_by_its_type_and_does_not_end_the_watch() -> None:
    verifier = FakeVerifier(term=timedelta(seconds=0.1))
    told = await watched(verifier, lambda said: len(said) >= 2, [RuntimeError("secret")])
    assert "cannot verify now: RuntimeError" in told[0]
    assert "secret" not in told[0]
    assert told[1].startswith("verified again")


async def test_a_wake_up_shortens_the_pause() -> None:
    verifier = FakeVerifier(term=timedelta(seconds=300))
    told: list[str] = []
    keeper = SessionKeeper(verifier.verify, utc_now=now)
    session = await keeper.arequire()
    watch_ = Watch(keeper=keeper, utc_now=now, tell=told.append)
    task = asyncio.ensure_future(watch_.run())
    verifier.errors = [EvidenceRefused("debug_enabled", "debug_enabled: no", None)]
    try:
        keeper.renew(than=session)
        async with asyncio.timeout(PATIENCE_S):
            while keeper.session is not None:
                await asyncio.sleep(0.01)
            watch_.wake.set()
            while not told:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
    assert told[0].startswith("REFUSED")
    assert verifier.num_calls == 2  # the standing refusal was told, nobody was asked again


def test_pauses_grow_and_end_growing() -> None:
    keeper = SessionKeeper(FakeVerifier(term=timedelta(1)).verify, utc_now=now)
    quiet = Watch(keeper=keeper, utc_now=now, tell=lambda _text: None)
    pauses = [quiet._pause("evidence_unavailable", n).total_seconds() for n in (1, 2, 3, 99)]
    assert pauses == [1, 2, 4, watch.LAST_RETRY.total_seconds()]
    assert quiet._pause("debug_enabled", 0) == watch.REFUSED_RETRY
