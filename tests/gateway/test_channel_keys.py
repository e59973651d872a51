"""Do keys rotate under load without a failed request, and is what they saw forgotten with them?"""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from attestation.channel import RotationEvent
from gateway.channel_keys import ChannelKeys
from gateway.problems import GatewayError
from gateway.worker.app import WorkerApp
from tests.gateway.support import rotate, running_stack, wait_until
from tests.support.patience import PATIENCE_S

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


def make_keys(events: list[RotationEvent], now_s: list[float]) -> ChannelKeys:
    return ChannelKeys(
        clock_s=lambda: now_s[0], utc_now=lambda: NOW, period_s=10, on_rotated=events.append
    )


def test_a_replay_is_known_until_its_key_is_erased() -> None:
    now_s = [0.0]
    keys = make_keys([], now_s)
    key_id = keys.published[0].key_id
    keys.require_new(key_id, b"enc", date=None)
    for now_s[0] in (0.0, 19.9):
        keys.opening()
        with pytest.raises(GatewayError) as caught:
            keys.require_new(key_id, b"enc", date=DATE)
        assert caught.value.code == "replay_detected"
    now_s[0] = 20.0
    assert key_id not in keys.opening()
    keys.require_new(key_id, b"enc", date=None)


def test_the_next_change_is_foreseen_once_a_rotation() -> None:
    """The keyset's digest hangs on it, and two clocks never tell quite the same."""
    now_s, now = [0.0], [NOW]
    keys = ChannelKeys(clock_s=lambda: now_s[0], utc_now=lambda: now[0], period_s=10)
    assert keys.changes_at == NOW + timedelta(seconds=10)
    now_s[0], now[0] = 5.0, NOW + timedelta(seconds=5.1)
    keys.opening()
    assert keys.changes_at == NOW + timedelta(seconds=10)
    now_s[0], now[0] = 10.0, NOW + timedelta(seconds=10.1)
    keys.opening()
    assert keys.changes_at == NOW + timedelta(seconds=20.1)


async def test_keys_rotate_without_any_request() -> None:
    loop = asyncio.get_running_loop()
    events: list[RotationEvent] = []
    keys = ChannelKeys(
        clock_s=loop.time, utc_now=lambda: NOW, period_s=0.05, on_rotated=events.append
    )
    first = keys.published[0].key_id
    keeping = asyncio.ensure_future(keys.keep())
    async with asyncio.timeout(PATIENCE_S):
        while not any(first in event.erased for event in events):
            await asyncio.sleep(0.01)
    keeping.cancel()


def test_the_worker_rotates_under_load_and_no_request_fails(tmp_path: Path) -> None:
    """Whole lives of keys pass while the gateway's leases still name them."""
    with running_stack(tmp_path) as stack:
        worker: WorkerApp = stack.worker.app
        statuses: list[int] = []
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.is_set():
                statuses.append(stack.chat().status_code)

        clients = [threading.Thread(target=ask) for _ in range(2)]
        for client in clients:
            client.start()
        try:
            for _ in range(4):
                rotate(stack.worker, worker.state.keys)
                num_asked = len(statuses)
                wait_until(lambda num=num_asked: len(statuses) > num + 4, timeout_s=60)  # type: ignore[misc]
        finally:
            is_over.set()
            for client in clients:
                client.join()
        assert set(statuses) == {200}
