"""Does the bench of the gateway measure what it says, with processes that really run?"""

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.bench import gateway
from gateway.bench.cli import bench
from gateway.bench.stub_engine import WORD, StubEngine, StubTokenizer
from runtime import GenerationRequest, SamplingParams
from runtime.live import Advance


def request(request_id: str, max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=(1,),
        sampling=replace(SamplingParams(max_tokens=max_tokens), temperature=0.0),
        arrival_ns=0,
    )


def test_the_stub_engine_keeps_its_pace() -> None:
    now_ns = [0]
    engine = StubEngine(itl_s=1.0, clock_ns=lambda: now_ns[0])
    engine.add(request("a", 2))
    engine.add(request("b", 9))

    def step(at_s: int) -> dict[str, Advance]:
        now_ns[0] = at_s * 1_000_000_000
        return {advance.request_id: advance for advance in engine.advance()}

    first = step(0)
    assert {name: advance.delta().text for name, advance in first.items()} == dict.fromkeys(
        "ab", WORD
    )
    assert step(0) == {}
    second = step(1)
    assert (second["a"].finish_reason, second["b"].finish_reason) == ("length", None)
    assert second["a"].timing is not None
    assert second["a"].timing.output_tokens == 2
    engine.abort("b")
    assert not engine.has_work()
    assert StubTokenizer().decode([1, 1]) == WORD * 2


async def test_every_turn_has_a_key_that_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    class FakeAsker:
        def __init__(self, _hop: Any, _body: bytes) -> None:
            pass

        async def take_key(self) -> None:
            did.append("key")

        async def ask(self) -> AsyncIterator[bytes]:
            did.append("ask")
            yield b"data: [DONE]\n\n"

        async def close(self) -> None:
            pass

    monkeypatch.setattr(gateway, "GatewayAsker", FakeAsker)
    monkeypatch.setattr(gateway, "WorkerAsker", FakeAsker)
    hop: Any = SimpleNamespace(cpu_s=lambda: 0.0)
    await gateway._measure(hop, b"", rate=1, seconds=1, repeat=1)
    assert [kind for kind, _ in itertools.groupby(did)] == ["key", "ask"] * 4


def test_a_small_run_through_real_processes() -> None:
    arguments = [
        "gateway",
        "--rate",
        "20",
        "--seconds",
        "1",
        "--repeat",
        "1",
        "--tokens",
        "3",
        "--json",
    ]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    rows = {row["name"]: row for row in document["results"]}
    assert set(rows) == {"through the gateway", "the worker alone"}
    for row in rows.values():
        assert (row["requests"], row["failed"], row["events"]) == (20, 0, 60)
        assert 0 < row["ttft_p50_ms"] <= row["ttft_p99_ms"]
    assert document["cpu_us_per_event"] > document["sealing_us_per_event"] > 0
