"""`starshade bench gateway`: what does the way through the gateway add, beside the worker alone?

Both are asked by one client in turns, open loop: requests are sent when they are due, not when an
earlier one is done, and latency counts from when they were due.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import uvloop

from attestation.channel import ClientRequest, ServerKey, ServerRequest
from gateway import sse
from gateway.bench.hop import GatewayAsker, Hop, WorkerAsker, running_hop
from gateway.bench.stub_engine import MODEL
from runtime.bench.machine import load_average
from runtime.bench.options import repeat_option
from runtime.bench.report import NotMeasurable, Report, Row, rounded
from runtime.bench.summary import quantile

ITL_S: Final = 0.02
_EVENT: Final = b"data: " + b"x" * 250 + b"\n\n"
_SEAL_ROUNDS: Final = 20_000
_US: Final = 1e6
_MS: Final = 1e3


@dataclass(slots=True)
class Run:
    """What one way of asking gave."""

    ttft_s: list[float] = field(default_factory=list)
    num_events: int = 0
    num_failed: int = 0
    late_s: float = 0.0  # the most that the client itself was behind
    cpu_s: float = 0.0

    def row(self, name: str) -> Row:
        return {
            "name": name,
            "ttft_p50_ms": rounded(quantile(self.ttft_s, 0.5) * _MS),
            "ttft_p99_ms": rounded(quantile(self.ttft_s, 0.99) * _MS),
            "requests": len(self.ttft_s),
            "failed": self.num_failed,
            "events": self.num_events,
            "client_late_ms": rounded(self.late_s * _MS),
        }


@click.command()
@click.option("--rate", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--seconds", type=click.IntRange(1, 600), default=10, show_default=True)
@click.option("--tokens", type=click.IntRange(1, 4096), default=32, show_default=True)
@repeat_option(3)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def gateway(rate: int, seconds: int, tokens: int, repeat: int, as_json: bool) -> None:
    """Time first tokens through the gateway and from the worker alone, with a stub engine."""
    started_load = load_average()
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Say something. " * 16}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_obfuscation": False},
        }
    ).encode()
    with (
        tempfile.TemporaryDirectory(prefix="starshade-bench-") as name,
        running_hop(Path(name), itl_s=ITL_S) as hop,
    ):
        runs = uvloop.run(_measure(hop, body, rate=rate, seconds=seconds, repeat=repeat))
    through, direct = runs
    if not through.ttft_s or not direct.ttft_s:
        raise NotMeasurable("no request was answered")
    cpu_us = through.cpu_s / through.num_events * _US
    seal_us = _sealing_s() * _US
    Report(
        command="gateway",
        model={"name": MODEL},
        settings={"rate_per_s": rate, "seconds": seconds, "tokens": tokens, "repeat": repeat},
        results=[through.row("through the gateway"), direct.row("the worker alone")],
        started_load=started_load,
        more={
            "added_ttft_p50_ms": _added(through, direct, 0.5),
            "added_ttft_p99_ms": _added(through, direct, 0.99),
            "cpu_us_per_event": rounded(cpu_us),
            "sealing_us_per_event": rounded(seal_us),
            "sealing_ratio": rounded(seal_us / cpu_us),
        },
    ).show(as_json=as_json)


async def _measure(
    hop: Hop, body: bytes, *, rate: int, seconds: int, repeat: int
) -> tuple[Run, Run]:
    """Through the gateway and the worker alone, in turns, after one turn to warm up."""
    through, direct = Run(), Run()
    gateway, worker = GatewayAsker(hop, body), WorkerAsker(hop, body)
    for turn in range(repeat + 1):
        for asker, run in ((gateway.ask, through), (worker.ask, direct)):
            measured = run if turn else Run()
            await worker.take_key()
            before_s = hop.cpu_s()
            await _load(asker, measured, num_requests=rate * seconds, interval_s=1 / rate)
            measured.cpu_s += hop.cpu_s() - before_s
    await gateway.close()
    await worker.close()
    return through, direct


async def _load(
    ask: Callable[[], AsyncIterator[bytes]], run: Run, *, num_requests: int, interval_s: float
) -> None:
    started_s = time.perf_counter()
    tasks = []
    for number in range(num_requests):
        due_s = started_s + number * interval_s
        await asyncio.sleep(max(due_s - time.perf_counter(), 0))
        run.late_s = max(run.late_s, time.perf_counter() - due_s)
        tasks.append(asyncio.ensure_future(_one(ask, run, due_s)))
    await asyncio.gather(*tasks)


async def _one(ask: Callable[[], AsyncIterator[bytes]], run: Run, due_s: float) -> None:
    splitter, first_s, is_done = sse.EventSplitter(), None, False
    try:
        async for data in ask():
            for event in splitter.feed(data):
                said = sse.event_data(event)
                if said == sse.DONE_DATA:
                    is_done = True
                elif b'"content":"' in said and b'"content":""' not in said:
                    run.num_events += 1
                    first_s = first_s or time.perf_counter()
    except Exception:  # whatever it was, the request failed, and that is counted
        is_done = False
    if is_done and first_s is not None:
        run.ttft_s.append(first_s - due_s)
    else:
        run.num_failed += 1


def _added(through: Run, direct: Run, q: float) -> float:
    return rounded((quantile(through.ttft_s, q) - quantile(direct.ttft_s, q)) * _MS)


def _sealing_s() -> float:
    """CPU time to seal one event at the worker and to open it at the gateway."""
    key = ServerKey.generate(1)
    request = ClientRequest(key.config, rng=lambda n: bytes(n))
    opened = ServerRequest({key.config.key_id: key})
    opened.feed(request.seal_message(b"x"))
    opened.finish()
    sealer, opener = opened.response_sealer(rng=lambda n: bytes(n)), request.response_opener()
    opener.feed(sealer.start())
    started_s = time.process_time()
    for _ in range(_SEAL_ROUNDS):
        opener.feed(sealer.seal_chunk(_EVENT))
    return (time.process_time() - started_s) / _SEAL_ROUNDS
