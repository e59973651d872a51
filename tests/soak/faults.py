"""How does the soak make the engine's parts fail?  Wrappers that raise now and then, seeded."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime import Runner, StepPlan, TokenSampler


class InjectedFault(Exception):
    """Raised on purpose."""


class FaultyRunner:
    """Fails before or after the wrapped runner has written to its cache."""

    def __init__(self, runner: Runner[Any], rng: random.Random, *, ratio: float) -> None:
        self._runner = runner
        self._rng = rng
        self.ratio = ratio
        self.num_faults = 0
        self.vocab_size = runner.vocab_size
        self.num_blocks, self.block_size = runner.num_blocks, runner.block_size
        self.max_context_tokens = runner.max_context_tokens

    def run(self, plan: StepPlan) -> Any:
        draw = self._rng.random()
        if draw < self.ratio / 2:
            self._fail()
        logits = self._runner.run(plan)
        if draw < self.ratio:
            self._fail()
        return logits

    def _fail(self) -> None:
        self.num_faults += 1
        raise InjectedFault


class FaultySampler:
    """Raises, or answers with a token that does not exist; else what the wrapped sampler says."""

    def __init__(self, sampler: TokenSampler[Any], rng: random.Random, *, ratio: float) -> None:
        self._sampler = sampler
        self._rng = rng
        self.ratio = ratio
        self.num_faults = 0

    def sample(self, logits: Any, rows: Sequence[Any]) -> Any:
        draw = self._rng.random()
        if draw < self.ratio:
            self.num_faults += 1
            if draw < self.ratio / 2:
                raise InjectedFault
            return [np.iinfo(np.int32).max] * len(rows)
        return self._sampler.sample(logits, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)  # what only some samplers can do
