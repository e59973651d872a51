"""Does an engine stay what it was through any number of requests?

A soak is a row of windows. In each, requests of random sizes come and go, are aborted, refused and
hit by faults, and after every step each block must be free, cached or held. Then the engine runs
dry: nothing may be left of any request, and a fixed set of prompts must give the texts it gave at
first, in about the processor time it took at first.
"""

import gc
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runtime import (
    Delta,
    DuplicateRequest,
    Engine,
    EngineConfig,
    GenerationRequest,
    InvalidPrompt,
    PromptTooLong,
    SamplingParams,
    StepStats,
)
from runtime.bench.engines import LoadedForBench
from runtime.bench.machine import pss_bytes
from runtime.sequence import Sequence
from tests.soak.faults import FaultyRunner, FaultySampler
from tests.soak.traffic import Traffic, make_traffic

NUM_BLOCKS = 96
MAX_SEQUENCES = 24
_ABORT_RATIO = 0.05  # of the steps
_REFUSED_RATIO = 0.02  # of the requests
_FAULT_RATIO = 0.01  # of the steps
_PROBES = 6
_PROBE_TOKENS = 24
_PROBE_REPEAT = 5
_END_REASONS = {"stop", "length", "abort", "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was seen when the engine had run dry."""

    num_requests: int
    ended: Counter[str]
    num_faults: int
    pss_bytes: int | None
    num_objects: int
    probe_cpu_s: float


class Soak:
    """One engine over all windows."""

    def __init__(self, loaded: LoadedForBench, *, seed: int, first_token_id: int) -> None:
        self._rng = random.Random(seed)
        runner = loaded.new_runner(NUM_BLOCKS)
        self._runner = FaultyRunner(runner, self._rng, ratio=0.0)
        self._sampler = FaultySampler(loaded.sampler, self._rng, ratio=0.0)
        self.engine = Engine(
            runner=self._runner,
            sampler=self._sampler,
            tokenizer=loaded.tokenizer,
            config=EngineConfig(
                num_blocks=runner.num_blocks,
                block_size=runner.block_size,
                max_batch_tokens=96,
                max_sequences=MAX_SEQUENCES,
            ),
            observer=self,
            clock_ns=time.monotonic_ns,
            fresh_seed=lambda: self._rng.getrandbits(64),
        )
        self._traffic = make_traffic(
            seed, vocab_size=runner.vocab_size, first_token_id=first_token_id
        )
        self._live: dict[str, GenerationRequest] = {}
        self._ended: Counter[str] = Counter()
        self._num_sent = 0
        self._texts: list[str] | None = None

    def on_step(self, stats: StepStats) -> None:
        """Every step's counts add up to the pool; an error is one of ours."""
        free_or_held = stats.num_free_blocks + stats.num_cached_blocks + stats.num_used_blocks
        assert free_or_held == self._runner.num_blocks, stats
        assert stats.error_type in (None, "InjectedFault", "InvariantBroken"), stats.error_type

    def windows(self, num_requests: int, *, num_windows: int) -> Iterator[Window]:
        """Run ``num_requests`` requests; the facts after each equal share of them."""
        for number in range(num_windows):
            share = num_requests * (number + 1) // num_windows - self._num_sent
            ended, faults = self._ended.copy(), self._num_faults()
            self._runner.ratio = self._sampler.ratio = _FAULT_RATIO / 2
            self._window(share)
            self._runner.ratio = self._sampler.ratio = 0.0
            self._require_dry()
            yield Window(
                num_requests=share,
                ended=self._ended - ended,
                num_faults=self._num_faults() - faults,
                probe_cpu_s=self._probe(),
                num_objects=_num_sequences(),
                pss_bytes=pss_bytes([os.getpid()]),
            )

    def _window(self, num_requests: int) -> None:
        target = self._num_sent + num_requests
        while self._num_sent < target or self._live:
            wanted = self._rng.randint(1, 2 * MAX_SEQUENCES)
            while self._num_sent < target and len(self._live) < wanted:
                self._send(self._traffic)
            if self._live and self._rng.random() < _ABORT_RATIO:
                self.engine.abort(self._rng.choice(sorted(self._live)))
            before = self._num_faults()
            deltas = self.engine.step()
            self._take(deltas, has_faults=self._num_faults() > before)
            self._require_blocks()

    def _send(self, traffic: Traffic) -> None:
        request = traffic.request(self._num_sent, arrival_ns=time.monotonic_ns())
        self._num_sent += 1
        if self._rng.random() < _REFUSED_RATIO:
            self._send_refused(request)
        self.engine.add(request)
        self._live[request.request_id] = request

    def _send_refused(self, request: GenerationRequest) -> None:
        """Neither takes a block: refused requests leave nothing behind."""
        ids = request.prompt_token_ids
        kinds: list[tuple[type[Exception], GenerationRequest]] = [
            (InvalidPrompt, replace(request, prompt_token_ids=(*ids, self._runner.vocab_size))),
            (PromptTooLong, replace(request, prompt_token_ids=ids[:1] * 100_000)),
        ]
        if self._live:
            known = self._rng.choice(sorted(self._live))
            kinds.append((DuplicateRequest, replace(request, request_id=known)))
        want, bad = self._rng.choice(kinds)
        try:
            self.engine.add(bad)
        except want:
            return
        raise AssertionError(f"{want.__name__} expected")

    def _take(self, deltas: list[Delta], *, has_faults: bool) -> None:
        for delta in deltas:
            assert delta.request_id in self._live, "a delta of a request that has ended"
            if delta.finish_reason is None:
                continue
            request = self._live.pop(delta.request_id)
            assert delta.finish_reason in _END_REASONS
            assert delta.finish_reason != "error" or has_faults, "an error that nobody injected"
            assert delta.timing is not None
            assert delta.timing.output_tokens <= request.sampling.max_tokens
            self._ended[delta.finish_reason] += 1

    def _require_blocks(self) -> None:
        """Each block is held as often as sequences name it."""
        pool = self.engine._scheduler.kv.pool
        held = Counter(
            int(block_id)
            for live in self.engine._live.values()
            for block_id in live.sequence.block_table.ids
        )
        assert [pool.ref_count(block_id) for block_id in range(pool.num_blocks)] == [
            held[block_id] for block_id in range(pool.num_blocks)
        ]

    def _require_dry(self) -> None:
        assert not self.engine.has_work()
        assert self.engine.step() == []
        scheduler = self.engine._scheduler  # the last step's facts are older than an abort
        assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)
        assert scheduler.kv.pool.num_used == 0
        assert sum(self._ended.values()) == self._num_sent

    def _probe(self) -> float:
        """Least processor time of the fixed prompts. Their texts are those of the first time."""
        seconds = []
        for number in range(_PROBE_REPEAT):
            started_s = time.process_time()
            texts = self._probe_texts(salt=b"probe%d" % self._rng.getrandbits(32))
            seconds.append(time.process_time() - started_s)
            self._texts = self._texts or texts
            assert texts == self._texts, f"other texts than at first, in repeat {number}"
        return min(seconds)

    def _probe_texts(self, *, salt: bytes) -> list[str]:
        for number in range(_PROBES):
            prompt = self._traffic.prefixes[number]
            self.engine.add(
                GenerationRequest(
                    request_id=f"probe-{number}",
                    prompt_token_ids=prompt,
                    sampling=SamplingParams(
                        max_tokens=_PROBE_TOKENS, temperature=0.0, ignore_eos=True
                    ),
                    arrival_ns=time.monotonic_ns(),
                    cache_salt=salt,
                )
            )
        texts = [""] * _PROBES
        while self.engine.has_work():
            for delta in self.engine.step():
                texts[int(delta.request_id.rpartition("-")[2])] += delta.text
        return texts

    def _num_faults(self) -> int:
        return self._runner.num_faults + self._sampler.num_faults


def _num_sequences() -> int:
    """Sequences that something still refers to."""
    gc.collect()
    return sum(type(item) is Sequence for item in gc.get_objects())
