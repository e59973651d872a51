"""How does a benchmark get the engine that the product would run, and nothing around it?"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from runtime.bench.report import Cell, NotMeasurable
from runtime.config import EngineConfig
from runtime.engine import Engine
from runtime.interfaces import Runner, TokenSampler
from runtime.observer import EngineObserver, NullObserver
from runtime.tokenizer import Tokenizer

BLOCK_SIZE = 16
MAX_BATCH_TOKENS = 512
_SEED = 20261130

AnyRunner: TypeAlias = "Runner[Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What the command line asks for; ``threads`` 0 takes every usable core."""

    model: Path
    threads: int = 0
    precision: str = "f32"
    kv_dtype: str = "f32"
    max_batch_tokens: int = MAX_BATCH_TOKENS

    def settings(self) -> dict[str, object]:
        return {
            "threads": self.threads,
            "precision": self.precision,
            "kv_dtype": self.kv_dtype,
            "max_batch_tokens": self.max_batch_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedForBench:
    """A model in memory and how to make runners of it."""

    name: str
    weights_sha256: str
    tokenizer: Tokenizer
    max_context_tokens: int
    new_runner: Callable[[int], AnyRunner]  # takes a number of blocks
    sampler: TokenSampler[Any]
    load_s: float

    def facts(self) -> dict[str, Cell]:
        return {"name": self.name, "sha256": self.weights_sha256}

    def runner_for(self, num_tokens: int) -> AnyRunner:
        """A runner whose KV cache holds ``num_tokens`` tokens of whole blocks."""
        return self.new_runner(-(-num_tokens // BLOCK_SIZE))

    def require_context(self, num_tokens: int) -> None:
        """Raises: NotMeasurable when prompt and output together exceed the model's context."""
        if num_tokens > self.max_context_tokens:
            raise NotMeasurable(
                f"{num_tokens} tokens exceed the model's context of {self.max_context_tokens}"
            )


def load_for_bench(choice: EngineChoice) -> LoadedForBench:
    """Raises: runtime.errors.RuntimeFault, OSError, NotMeasurable."""
    started_s = time.perf_counter()
    if (choice.precision, choice.kv_dtype) != ("f32", "f32"):
        raise NotMeasurable("this engine computes in f32 alone")
    return _load_torch(choice, started_s)


def new_engine(
    loaded: LoadedForBench,
    runner: AnyRunner,
    *,
    max_sequences: int = 64,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    prefix_cache: bool = True,
    observer: EngineObserver | None = None,
) -> Engine:
    """An engine whose prefix cache knows nothing yet; the runner may have served others."""
    return Engine(
        runner=runner,
        sampler=loaded.sampler,
        tokenizer=loaded.tokenizer,
        config=EngineConfig(
            num_blocks=runner.num_blocks,
            block_size=runner.block_size,
            max_batch_tokens=max_batch_tokens,
            max_sequences=max_sequences,
            max_waiting=1 << 16,
            prefix_cache=prefix_cache,
            model_sha256=loaded.weights_sha256,
        ),
        observer=observer or NullObserver(),
        clock_ns=time.perf_counter_ns,
        fresh_seed=lambda: _SEED,
    )


def _load_torch(choice: EngineChoice, started_s: float) -> LoadedForBench:
    from runtime.devices.registry import open_device
    from runtime.model_runner import ModelRunner, load_model
    from runtime.sampler import Sampler

    model = load_model(choice.model, device=open_device("cpu", num_threads=choice.threads))
    return LoadedForBench(
        name=model.name,
        weights_sha256=model.weights_sha256,
        tokenizer=model.tokenizer,
        max_context_tokens=model.config.max_context_tokens,
        new_runner=lambda num: ModelRunner(model, num_blocks=num, block_size=BLOCK_SIZE),
        sampler=Sampler(),
        load_s=time.perf_counter() - started_s,
    )
