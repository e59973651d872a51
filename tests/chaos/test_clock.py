"""Clocks that jump, injected where the processes read them: is every answer whole or a typed error?

A jump is followed by a verdict under the new time, never by a lease that outlives its evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import gateway.wiring
import gateway.worker.wiring
from gateway.process import utc_now
from tests.gateway.support import Stack, error_of, running_stack, wait_until

MINUTE = timedelta(minutes=1)


@dataclass
class Clock:
    """The real one, and how far it is off."""

    offset: timedelta = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self.offset


@dataclass
class Clocks:
    """Gateway and worker have one each: one machine's clock jumps, the other's does not."""

    gateway: Clock
    worker: Clock

    def jump(self, by: timedelta) -> None:
        self.gateway.offset += by
        self.worker.offset += by


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """At the composition roots, which hand them to everything else."""
    clocks = Clocks(gateway=Clock(), worker=Clock())
    monkeypatch.setattr(gateway.wiring, "utc_now", clocks.gateway)
    monkeypatch.setattr(gateway.worker.wiring, "utc_now", clocks.worker)
    return clocks


@pytest.fixture
def stack(clocks: Clocks, tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path) as stack:
        yield stack


def lease_end(stack: Stack) -> datetime:
    node = stack.client.get("/v1/nodes").json()["data"][0]
    return datetime.fromisoformat(node["not_after"])


@pytest.mark.parametrize(
    "jump", [6 * MINUTE, -6 * MINUTE, 2 * 24 * 60 * MINUTE], ids=["later", "earlier", "days"]
)
def test_requests_go_on_after_a_jump_under_a_new_verdict(
    clocks: Clocks, stack: Stack, jump: timedelta
) -> None:
    assert stack.chat().status_code == 200
    before = lease_end(stack)
    clocks.jump(jump)
    assert stack.chat().status_code == 200
    assert lease_end(stack) - before > jump - MINUTE
    assert clocks.gateway() < lease_end(stack) <= clocks.gateway() + 5 * MINUTE


def test_a_receipt_has_the_time_of_its_clock(clocks: Clocks, stack: Stack) -> None:
    clocks.jump(90 * MINUTE)
    receipt_id = stack.chat().headers["starshade-receipt"]
    receipt = stack.client.get(f"/v1/receipts/{receipt_id}").json()["receipt"]
    started = datetime.fromisoformat(receipt["started_at"])
    assert abs(started - (datetime.now(UTC) + 90 * MINUTE)) < MINUTE  # noqa: TID251


def test_clocks_that_disagree_give_a_typed_error_and_heal(clocks: Clocks, stack: Stack) -> None:
    """The gateway's alone is put back: what it seals is too old for the worker."""
    clocks.gateway.offset = -10 * MINUTE
    answer = stack.chat()
    assert answer.status_code in {502, 503}
    assert error_of(answer)["code"] in {"upstream_error", "upstream_unavailable",
                                        "upstream_verification_failed"}  # fmt: skip
    clocks.gateway.offset = timedelta()
    wait_until(lambda: stack.chat().status_code == 200, timeout_s=20)


def test_collateral_that_a_jump_has_outlived_is_refused(clocks: Clocks, stack: Stack) -> None:
    """The worker's clock stands still, so its collateral is forty days old for the gateway."""
    assert stack.chat().status_code == 200
    clocks.gateway.offset = 40 * 24 * 60 * MINUTE
    answer = stack.chat()
    assert answer.status_code == 503
    assert error_of(answer)["code"] == "upstream_verification_failed"
    assert "collateral_expired" in error_of(answer)["message"]
