"""SIGKILL in the middle of streams: does each one end in an error, and has each one its receipt?"""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from attestation.receipt import SignedReceipt
from attestation.transport import gateway_keeper
from tests.chaos.processes import Processes, events_until_broken, processes, wait_for_receipt
from tests.support.servers import unix_client

NUM_STREAMS = 6
ENDS_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("kills")) as running:
        yield running


@pytest.fixture
def running(both: Processes) -> Processes:
    """Whom an earlier test has killed is there again."""
    both.start_missing()
    both.wait_ready()
    return both


def stream_until_broken(
    running: Processes, has_begun: threading.Semaphore
) -> tuple[str, list[dict[str, Any]], bool, float]:
    """(receipt id, events, whether it was whole, when it ended)."""
    with (
        running.client() as client,
        client.stream("POST", "/v1/chat/completions", json=running.long_body()) as response,
    ):
        assert response.status_code == 200
        has_begun.release()
        events, is_done = events_until_broken(response)
        return response.headers["starshade-receipt"], events, is_done, time.monotonic()


def kill_in_the_middle(
    running: Processes, role: str
) -> list[tuple[str, list[dict[str, Any]], bool, float]]:
    """Every stream is under way when ``role`` dies."""
    has_begun = threading.Semaphore(0)
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        streams: list[Future[Any]] = [
            pool.submit(stream_until_broken, running, has_begun) for _ in range(NUM_STREAMS)
        ]
        for _ in streams:
            assert has_begun.acquire(timeout=20)
        time.sleep(0.2)  # some tokens in
        killed_at = time.monotonic()
        running.kill(role)
        ended = [stream.result(30) for stream in streams]
    assert max(at for *_, at in ended) - killed_at < ENDS_WITHIN_S
    return ended


def require_signed(running: Processes, receipt: dict[str, Any]) -> None:
    """By a key that the running gateway attests."""
    url = f"{running.base_url}/v1"
    keeper = gateway_keeper(url, policy="development", ca_file=running.config.paths.ca_cert)
    SignedReceipt.parse(json.dumps(receipt).encode()).verify(keeper.require().receipt_keys)


def test_a_killed_worker_leaves_error_events_and_true_receipts(running: Processes) -> None:
    ended = kill_in_the_middle(running, "worker")
    for receipt_id, events, is_done, _ in ended:
        assert not is_done
        assert events[-1]["error"]["code"] in {"upstream_truncated", "upstream_unavailable"}
        with running.client() as client:
            receipt = wait_for_receipt(client, receipt_id)
        assert receipt["receipt"]["outcome"] == "failed"
        assert receipt["receipt"]["code"] == events[-1]["error"]["code"]
        require_signed(running, receipt)
    running.start_missing()
    running.wait_ready()
    with running.client() as client:
        assert client.post("/v1/chat/completions", json=running.body()).status_code == 200


def test_a_killed_gateway_leaves_cut_streams_and_says_so_later(running: Processes) -> None:
    with running.client() as client:
        before = client.post("/v1/chat/completions", json=running.body())
        assert before.status_code == 200
        wait_for_receipt(client, before.headers["starshade-receipt"])
    ended = kill_in_the_middle(running, "serve")
    assert not any(is_done for _, _, is_done, _ in ended)
    running.start_missing()
    running.wait_ready()
    with running.client() as client:
        for receipt_id, *_ in ended:
            receipt = wait_for_receipt(client, receipt_id)
            assert receipt["receipt"]["outcome"] == "interrupted"
            require_signed(running, receipt)
        kept = wait_for_receipt(client, before.headers["starshade-receipt"])
        assert kept["receipt"]["outcome"] == "complete"
        assert client.post("/v1/chat/completions", json=running.body()).status_code == 200


def test_the_worker_forgets_what_a_dead_gateway_asked_for(running: Processes) -> None:
    kill_in_the_middle(running, "serve")
    with unix_client(running.config.worker.socket) as worker:
        give_up = time.monotonic() + ENDS_WITHIN_S
        while worker.get("/stats").json()["open"]:
            assert time.monotonic() < give_up, "sequences go on for nobody"
            time.sleep(0.05)
