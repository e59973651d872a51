"""A scheduler under load on a machine that does not exist: time is computed, nothing else runs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from runtime import EngineConfig, ScheduleStats
from runtime.scheduler import ScheduledStep, Scheduler
from runtime.sequence import Sequence, SequenceStatus
from tests.runtime.harness import request

TRUE_COST = (3.2e-3, 3.7e-4, 1.7e-7)  # s a step, a token, a (query, key) pair; two slow cores


@dataclass(kw_only=True)
class Client:
    """One request of the load and when its tokens came."""

    sequence: Sequence
    arrival_s: float
    token_s: list[float] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.arrival_s

    @property
    def gaps_s(self) -> list[float]:
        return np.diff(self.token_s).tolist()


class Simulation:
    """``noise`` multiplies each step's true time by a log-normal factor of that sigma."""

    def __init__(
        self,
        *,
        num_blocks: int = 4096,
        block_size: int = 16,
        noise: float = 0.0,
        seed: int = 0,
        **config: float,
    ) -> None:
        self.config = EngineConfig(num_blocks=num_blocks, block_size=block_size, **config)  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.config)
        self.now_s = 0.0
        self.clients: list[Client] = []
        self.steps: list[tuple[float, ScheduledStep]] = []
        self.on_finish: Callable[[Client], None] = lambda _client: None
        self._arrivals: list[Client] = []
        self._by_sequence: dict[Sequence, Client] = {}
        self._ends: dict[Sequence, int] = {}
        self._rng = np.random.default_rng(seed)
        self._noise = noise

    def arrive(
        self,
        at_s: float,
        prompt: tuple[int, ...] | int,
        *,
        max_tokens: int,
        priority: int = 0,
        tenant: str = "",
        salt: bytes = b"",
        num_output: int | None = None,
    ) -> Client:
        """A prompt of that many random tokens; it stops after ``num_output``, if given."""
        if isinstance(prompt, int):
            prompt = tuple(self._rng.integers(0, 1 << 30, size=prompt).tolist())
        name = f"r{len(self.clients)}"
        one = request(
            name, prompt, max_tokens=max_tokens, salt=salt, priority=priority, tenant=tenant
        )
        sequence = Sequence(one, rng_seed=0, max_output_tokens=max_tokens)
        client = Client(sequence=sequence, arrival_s=at_s)
        self._by_sequence[sequence] = client
        self.clients.append(client)
        self._arrivals.append(client)
        self._arrivals.sort(key=lambda one: one.arrival_s)
        self._ends[sequence] = max_tokens if num_output is None else num_output
        return client

    def run(self, *, max_steps: int = 100_000) -> list[ScheduleStats]:
        for _ in range(max_steps):
            while self._arrivals and self._arrivals[0].arrival_s <= self.now_s:
                self.scheduler.add(self._arrivals.pop(0).sequence)
            step = self.scheduler.schedule()
            if step is not None:
                self._run(step)
            elif self._arrivals:
                self.now_s = self._arrivals[0].arrival_s
            else:
                return [step.stats for _, step in self.steps]
        raise AssertionError(f"still working after {max_steps} steps")

    def _run(self, step: ScheduledStep) -> None:
        a, b, c = TRUE_COST
        step_s = a + b * step.plan.num_tokens + c * step.num_pairs
        step_s *= self._rng.lognormal(0.0, self._noise)
        self.now_s += step_s
        self.steps.append((step_s, step))
        new_token_ids = [(int(self._rng.integers(1 << 30)),) for _ in step.sampled]
        self.scheduler.commit(step, new_token_ids, step_s=step_s)
        for row in step.sampled:
            client = self._by_sequence[row.sequence]
            client.token_s.append(self.now_s)
            if row.sequence.num_output_tokens >= self._ends[row.sequence]:
                self.scheduler.finish(row.sequence)
                self.on_finish(client)

    @property
    def num_computed_tokens(self) -> int:
        return sum(step.plan.num_tokens for _, step in self.steps)

    def running(self) -> list[Sequence]:
        return [
            client.sequence
            for client in self.clients
            if client.sequence.status is SequenceStatus.RUNNING
        ]
