"""Two workers: is a request that one cannot answer answered by the other, and a stream that may not
go on cut in time?
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from attestation.receipt import Receipt, Revocation, SignedReceipt
from gateway.app import GatewayApp
from gateway.attest import LiveAttestation
from gateway.wiring import build_gateway_app
from gateway.worker_node import VerdictRefused, WorkerNode
from tests.gateway.support import (
    HashEngine,
    chat_body,
    make_config,
    make_worker_app,
    prepare,
    wait_until,
)
from tests.support.patience import PATIENCE_S
from tests.support.servers import ServerThread, unix_client

CHAT = "/v1/chat/completions"
STEP_S = 0.02


@dataclass
class Pair:
    """A gateway with two workers, `w-0` and `w-1`."""

    gateway: ServerThread
    workers: list[ServerThread]
    engines: list[HashEngine]
    client: httpx.Client

    @property
    def nodes(self) -> dict[str, WorkerNode]:
        app: GatewayApp = self.gateway.app
        return {node.id: node for node in app.services.directory.nodes}

    def receipt(self, receipt_id: str) -> Receipt:
        answer = self.client.get(f"/v1/receipts/{receipt_id}")
        return SignedReceipt.parse(answer.content).receipt

    def refuse(self, worker: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next verdict on this worker is negative, and it is there."""
        node = self.nodes[worker]
        facts = node.last_facts
        assert facts is not None

        async def attest(_self: LiveAttestation, *, node: str, epoch: int) -> None:
            raise VerdictRefused(code, replace(facts, error_code=code))

        monkeypatch.setattr(LiveAttestation, "attest", attest)
        app: GatewayApp = self.gateway.app
        assert self.gateway.loop is not None
        asyncio.run_coroutine_threadsafe(
            app.services.directory.reattest(node), self.gateway.loop
        ).result(timeout=PATIENCE_S)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    sockets = [tmp_path / "run" / f"w-{number}.sock" for number in range(2)]
    config, key = prepare(tmp_path, gateway__workers=tuple(f"unix:{path}" for path in sockets))
    engines = [HashEngine(step_s=STEP_S), HashEngine(step_s=STEP_S)]
    workers = []
    for number, (path, engine) in enumerate(zip(sockets, engines, strict=True)):
        own = make_config(tmp_path, worker__socket=str(path), worker__id=f"w-{number}")
        workers.append(ServerThread(make_worker_app(own, engine, InMemorySpanExporter()), uds=path))
    gateway_socket = tmp_path / "run" / "gateway.sock"
    gateway = ServerThread(build_gateway_app(config), uds=gateway_socket)
    headers = {"authorization": f"Bearer {key}"}
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker)
        stack.enter_context(gateway)
        client = stack.enter_context(unix_client(gateway_socket, headers=headers, timeout=30))
        found = Pair(gateway=gateway, workers=workers, engines=engines, client=client)
        wait_until(lambda: all(node.grant is not None for node in found.nodes.values()))
        yield found


def test_a_worker_that_is_gone_costs_no_request(pair: Pair) -> None:
    first = pair.receipt(pair.client.post(CHAT, json=chat_body()).headers["starshade-receipt"])
    gone = pair.workers[int(str(first.worker)[-1])]
    gone.stop()
    for stream in (False, True):
        response = pair.client.post(CHAT, json=chat_body(stream=stream))
        assert response.status_code == 200, response.text
        receipt = pair.receipt(response.headers["starshade-receipt"])
        assert (receipt.outcome, receipt.worker != first.worker) == ("complete", True)
        assert receipt.lease_id != first.lease_id


def test_a_worker_that_is_stopping_passes_a_request_on(pair: Pair) -> None:
    """The refusal comes sealed, from inside; it is the other worker's answer that is told."""
    for node in pair.nodes.values():
        node.load.num_open = 100 if node.id == "w-1" else 0
    response = pair.client.post(CHAT, json=chat_body())
    assert pair.receipt(response.headers["starshade-receipt"]).worker == "w-0"
    assert pair.workers[0].loop is not None
    pair.workers[0].loop.call_soon_threadsafe(pair.workers[0].app.begin_drain)
    wait_until(lambda: pair.workers[0].app._draining is not None)
    response = pair.client.post(CHAT, json=chat_body())
    assert response.status_code == 200, response.text
    assert pair.receipt(response.headers["starshade-receipt"]).worker == "w-1"


def test_class_a_cuts_a_stream_within_a_second(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    body = chat_body(stream=True, max_tokens=200, ignore_eos=True)
    with pair.client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()
        next(lines)
        receipt_id = response.headers["starshade-receipt"]
        worker = next(node.id for node in pair.nodes.values() if node.load.num_open)
        pair.refuse(worker, "debug_enabled", monkeypatch)
        *late, last = [line for line in lines if line]
    assert len(late) < 1 / STEP_S  # each took a step's time at least
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["code"] == "upstream_verification_failed"
    assert "debug_enabled" in error["message"]
    receipt = pair.receipt(receipt_id)
    assert (receipt.outcome, receipt.code) == ("failed", "upstream_verification_failed")
    assert receipt.revocation == Revocation(code="debug_enabled", verdict_class="A")


def test_class_b_lets_a_stream_end_and_its_receipt_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = chat_body(stream=True, max_tokens=50, ignore_eos=True)
    with pair.client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()
        next(lines)
        receipt_id = response.headers["starshade-receipt"]
        worker = next(node.id for node in pair.nodes.values() if node.load.num_open)
        pair.refuse(worker, "collateral_expired", monkeypatch)
        *_, last = [line for line in lines if line]
    assert last == "data: [DONE]"
    receipt = pair.receipt(receipt_id)
    assert (receipt.outcome, receipt.code) == ("complete", None)
    assert receipt.revocation == Revocation(code="collateral_expired", verdict_class="B")
