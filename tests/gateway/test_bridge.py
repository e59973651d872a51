"""Do coroutines get their deltas, and does the engine never wait for any of them?"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.problems import GatewayError
from gateway.worker.bridge import EngineBridge
from runtime import (
    Advance,
    Delta,
    Engine,
    EngineConfig,
    GenerationRequest,
    NullObserver,
    SamplingParams,
)
from runtime.output import OutputText, Written
from tests.gateway.support import wait_until
from tests.support.fake_runner import FakeRunner, FakeSampler, FakeTokenizer
from tests.support.patience import PATIENCE_S

NUM_BLOCKS = 32


class CountingEngine(Engine):
    """The real engine, which notes what was asked of it and can be held between steps."""

    def __init__(self, *, max_waiting: int = 256) -> None:
        self.runner = FakeRunner(num_blocks=NUM_BLOCKS, block_size=4)
        super().__init__(
            runner=self.runner,
            sampler=FakeSampler(),
            tokenizer=FakeTokenizer(),
            config=EngineConfig(num_blocks=NUM_BLOCKS, block_size=4, max_waiting=max_waiting),
            observer=NullObserver(),
            clock_ns=time.monotonic_ns,
            fresh_seed=lambda: 0,
        )
        self.aborted: list[str] = []
        self.num_steps = 0
        self.may_step = threading.Event()
        self.may_step.set()
        self.is_broken = False

    def add(self, request: GenerationRequest) -> None:
        if self.is_broken:
            raise KeyError("add")
        super().add(request)

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        super().abort(request_id)

    def advance(self) -> list[Advance]:
        assert self.may_step.wait(PATIENCE_S)
        self.num_steps += 1
        if self.is_broken:
            raise RuntimeError("step")
        return super().advance()

    @property
    def num_free_blocks(self) -> int:
        pool = self._scheduler.kv.pool
        return pool.num_free + pool.num_cached


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
async def bridge(engine: CountingEngine) -> AsyncIterator[EngineBridge]:
    bridge = EngineBridge(
        engine,
        loop=asyncio.get_running_loop(),
        max_pending_deltas=32,
        max_yield_s=PATIENCE_S,  # no step while the loop has not passed on what the last one gave
    )
    engine.runner.before_run = lambda _plan: time.sleep(0.001)
    bridge.start()
    yield bridge
    engine.may_step.set()
    await bridge.stop()


def request(name: str, *, max_tokens: int = 5, prompt: int = 4) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_token_ids=tuple(range(1, prompt + 1)),
        sampling=SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True),
        arrival_ns=0,
    )


async def collect(bridge: EngineBridge, wanted: GenerationRequest) -> list[Delta]:
    async with bridge.generate(wanted) as generation:
        return [delta async for delta in generation.deltas()]


async def until(engine: CountingEngine, num_free_blocks: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while engine.num_free_blocks != num_free_blocks:
            await asyncio.sleep(0.001)


async def test_deltas_arrive_in_order_and_end(bridge: EngineBridge) -> None:
    deltas = await collect(bridge, request("a"))
    assert [delta.finish_reason for delta in deltas] == [None] * 4 + ["length"]
    assert deltas[-1].timing is not None
    assert bridge.num_open == 0


async def test_many_requests_do_not_mix(bridge: EngineBridge) -> None:
    alone = await collect(bridge, request("alone", prompt=3))
    many = await asyncio.gather(*(collect(bridge, request(f"r{n}", prompt=3)) for n in range(20)))
    tokens = [delta.token_ids for delta in alone]
    assert all([delta.token_ids for delta in deltas] == tokens for deltas in many)


async def test_one_wake_up_per_step(
    engine: CountingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = EngineBridge(engine, loop=asyncio.get_running_loop())
    num_wake_ups = 0
    hand_over = bridge._hand_over

    def counted(*arguments: object) -> None:
        nonlocal num_wake_ups
        num_wake_ups += 1
        hand_over(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bridge, "_hand_over", counted)
    bridge.start()
    await asyncio.gather(*(collect(bridge, request(f"r{n}", max_tokens=9)) for n in range(8)))
    assert num_wake_ups <= engine.num_steps
    await bridge.stop()


async def test_leaving_early_frees_the_blocks_within_a_step(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    async with bridge.generate(request("a", max_tokens=100)) as generation:
        async for _ in generation.deltas():
            break
        assert engine.num_free_blocks < NUM_BLOCKS
        engine.may_step.clear()
    steps_before = engine.num_steps
    engine.may_step.set()
    await until(engine, NUM_BLOCKS)
    assert len(engine.aborted) == 1
    assert engine.num_steps - steps_before <= 2  # the one that was held, and the next


async def test_cancelling_a_reader_aborts(bridge: EngineBridge, engine: CountingEngine) -> None:
    task = asyncio.ensure_future(collect(bridge, request("a", max_tokens=100)))
    async with asyncio.timeout(PATIENCE_S):
        while engine.num_free_blocks == NUM_BLOCKS:
            await asyncio.sleep(0)
    engine.may_step.clear()  # or it may be over first
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    engine.may_step.set()
    await until(engine, NUM_BLOCKS)


async def test_a_slow_reader_loses_its_stream_and_holds_up_nobody(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    async with bridge.generate(request("slow", max_tokens=100)) as slow:
        stalled = slow.deltas()
        await anext(stalled)
        deltas = await collect(bridge, request("quick", max_tokens=60))
        assert len(deltas) == 60
        with pytest.raises(GatewayError) as caught:
            async for _ in stalled:
                pass
    assert caught.value.code == "slow_reader"
    assert len(engine.aborted) == 1


async def test_a_delta_is_taken_in_its_callback_where_the_reader_waits(
    bridge: EngineBridge,
) -> None:
    seen: list[tuple[str, Delta]] = []

    def take(delta: Delta) -> bool:
        if delta.finish_reason is None and len(seen) % 3 != 1:
            seen.append(("taken", delta))
            return True
        return False

    async with bridge.generate(request("a", max_tokens=20)) as generation:
        generation.divert(take)
        async for delta in generation.deltas():
            seen.append(("given", delta))
    alone = await collect(bridge, request("b", max_tokens=20))
    assert [delta.token_ids for _, delta in seen] == [delta.token_ids for delta in alone]
    assert {how for how, _ in seen} == {"taken", "given"}
    assert (seen[-1][0], seen[-1][1].finish_reason) == ("given", "length")


async def test_nothing_overtakes_a_reader_that_is_busy(bridge: EngineBridge) -> None:
    taken: list[Delta] = []

    def take(delta: Delta) -> bool:
        taken.append(delta)
        return delta.finish_reason is None

    async with bridge.generate(request("busy", max_tokens=8)) as generation:
        generation.divert(take)
        deltas = generation.deltas()
        assert await collect(bridge, request("other", max_tokens=20))  # nobody reads meanwhile
        assert taken == []
        assert len([delta async for delta in deltas]) == 8


async def test_what_taking_raises_ends_its_own_stream_only(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    def fail(_delta: Delta) -> bool:
        raise KeyError("take")

    other = asyncio.ensure_future(collect(bridge, request("other")))
    async with bridge.generate(request("a", max_tokens=100)) as generation:
        generation.divert(fail)
        with pytest.raises(KeyError):
            async for _ in generation.deltas():
                pass
    assert len(await other) == 5
    await until(engine, NUM_BLOCKS)


async def test_a_full_engine_refuses() -> None:
    engine = CountingEngine(max_waiting=1)
    bridge = EngineBridge(engine, loop=asyncio.get_running_loop())
    engine.may_step.clear()
    bridge.start()
    # the first waits inside the held step, the second fills the queue
    tasks = [asyncio.ensure_future(collect(bridge, request(f"r{n}"))) for n in range(6)]
    await asyncio.sleep(0.02)
    engine.may_step.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    codes = {result.code for result in results if isinstance(result, GatewayError)}
    assert codes == {"overloaded"}
    assert any(isinstance(result, list) for result in results)
    await bridge.stop()


async def test_a_refused_request_raises_on_entry(bridge: EngineBridge) -> None:
    with pytest.raises(GatewayError) as caught:
        await collect(bridge, request("long", prompt=NUM_BLOCKS * 4))
    assert caught.value.code == "context_length_exceeded"
    assert bridge.num_open == 0


async def test_a_broken_step_fails_its_requests_only(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    async with bridge.generate(request("a", max_tokens=100)) as generation:
        engine.is_broken = True
        with pytest.raises(GatewayError) as caught:
            async for _ in generation.deltas():
                pass
    assert caught.value.code == "generation_failed"
    engine.is_broken = False
    assert len(await collect(bridge, request("b"))) == 5
    assert engine.num_free_blocks == NUM_BLOCKS


async def test_draining_lets_short_streams_finish_and_tells_long_ones(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    short = asyncio.ensure_future(collect(bridge, request("short", max_tokens=3)))
    short.add_done_callback(lambda _: engine.may_step.clear())  # the other one never ends
    long = asyncio.ensure_future(collect(bridge, request("long", max_tokens=100)))
    while bridge.num_open < 2:
        await asyncio.sleep(0)
    await bridge.drain(2)
    engine.may_step.set()
    assert len(await short) == 3
    with pytest.raises(GatewayError) as caught:
        await long
    assert caught.value.code == "server_stopping"
    with pytest.raises(GatewayError) as refused:
        await collect(bridge, request("late"))
    assert refused.value.code == "server_stopping"


async def test_two_requests_never_share_an_id(bridge: EngineBridge, engine: CountingEngine) -> None:
    first = bridge.generate(request("a", max_tokens=20))
    async with asyncio.timeout(PATIENCE_S), first:
        with pytest.raises(GatewayError) as caught:
            await collect(bridge, request("a", max_tokens=3))
        deltas = [delta async for delta in first.deltas()]
    assert caught.value.code == "duplicate_request_id"
    assert sum(len(delta.token_ids) for delta in deltas) == 20
    assert engine.aborted == []


async def test_a_bug_in_taking_a_request_fails_it_alone(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    engine.is_broken = True
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(GatewayError) as caught:
            await collect(bridge, request("a"))
        engine.is_broken = False
        assert caught.value.code == "generation_failed"
        assert len(await collect(bridge, request("b"))) == 5


async def test_an_id_is_free_again_when_its_reader_has_left(
    bridge: EngineBridge, engine: CountingEngine
) -> None:
    async with bridge.generate(request("a", max_tokens=100)) as first:
        await anext(first.deltas())
        engine.may_step.clear()
    again = asyncio.ensure_future(collect(bridge, request("a")))
    await asyncio.sleep(0.02)  # the step that is held, then the abort and the new request at once
    engine.may_step.set()
    assert [delta.finish_reason for delta in await again] == [None] * 4 + ["length"]
    await until(engine, NUM_BLOCKS)


async def test_text_is_made_on_the_loop_unless_it_decides_where_the_output_ends(
    bridge: EngineBridge, engine: CountingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[bool, set[int]] = {False: set(), True: set()}
    write = OutputText.write

    def noted(self: OutputText, *arguments: object) -> Written:
        threads[self.has_stops].add(threading.get_ident())
        return write(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OutputText, "write", noted)
    with_stop = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True, stop=("never",))
    await asyncio.gather(
        collect(bridge, request("a")),
        collect(bridge, replace(request("b"), sampling=with_stop)),
    )
    assert threads == {False: {threading.get_ident()}, True: {bridge._thread.ident}}


async def test_a_bug_in_making_text_fails_its_request_alone(
    bridge: EngineBridge, engine: CountingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = engine._tokenizer.detokenizer()
    monkeypatch.setattr(broken, "push", lambda token_id: 1 / 0)
    detokenizers = iter([broken, engine._tokenizer.detokenizer()])
    monkeypatch.setattr(engine._tokenizer, "detokenizer", lambda: next(detokenizers))
    async with asyncio.timeout(PATIENCE_S):
        results = await asyncio.gather(
            collect(bridge, request("a", max_tokens=100)),
            collect(bridge, request("b")),
            return_exceptions=True,
        )
    assert len(engine.aborted) == 1
    assert isinstance(results[0], GatewayError)
    assert results[0].code == "generation_failed"
    assert isinstance(results[1], list)
    await until(engine, NUM_BLOCKS)


@pytest.mark.parametrize("max_yield_s", [0.0, 5.0])
async def test_the_next_step_waits_until_tokens_are_passed_on(max_yield_s: float) -> None:
    """Then a reader always has what a step gave before the next one begins, and no sooner else."""
    engine = CountingEngine()
    bridge = EngineBridge(engine, loop=asyncio.get_running_loop(), max_yield_s=max_yield_s)
    bridge.start()
    lags = []
    async with (
        asyncio.timeout(PATIENCE_S),
        bridge.generate(request("a", max_tokens=60)) as generation,
    ):
        num_tokens = 0
        async for delta in generation.deltas():
            time.sleep(0.002)
            num_tokens += len(delta.token_ids)
            lags.append(engine.num_steps - num_tokens)
    assert (max(lags) == 0) == bool(max_yield_s)
    await bridge.stop()


async def test_a_loop_that_is_stuck_holds_the_engine_up_for_a_moment_only() -> None:
    engine = CountingEngine()
    bridge = EngineBridge(engine, loop=asyncio.get_running_loop(), max_yield_s=0.001)
    bridge.start()
    async with bridge.generate(request("a", max_tokens=20)) as generation:
        deltas = generation.deltas()
        await anext(deltas)
        wait_until(lambda: engine.num_steps == 20)  # without the loop, which waits for this
        assert len([delta async for delta in deltas]) == 19
    await bridge.stop()
