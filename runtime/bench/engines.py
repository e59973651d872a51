"""How does a benchmark get the engine that the product would run, and nothing around it?"""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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


NATIVE, TORCH = "native", "torch"
PRECISIONS = ("int8", "f32")
KV_DTYPES = ("bf16", "int8", "f32")
_DEFAULTS = {NATIVE: ("int8", "bf16"), TORCH: ("f32", "f32")}


def default_backend() -> str:
    """The compiled model where it is built."""
    return NATIVE if importlib.util.find_spec("runtime._native") else TORCH


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What the command line asks for; ``threads`` 0 takes every usable core.

    What is empty becomes the backend's default; the torch backend computes in f32 alone.
    """

    model: Path
    threads: int = 0
    backend: str = field(default_factory=default_backend)
    precision: str = ""
    kv_dtype: str = ""
    max_batch_tokens: int = MAX_BATCH_TOKENS

    def __post_init__(self) -> None:
        precision, kv_dtype = _DEFAULTS[self.backend]
        object.__setattr__(self, "precision", self.precision or precision)
        object.__setattr__(self, "kv_dtype", self.kv_dtype or kv_dtype)
        if self.backend == TORCH and (self.precision, self.kv_dtype) != _DEFAULTS[TORCH]:
            raise NotMeasurable("the torch backend computes in f32 alone")

    def settings(self) -> dict[str, object]:
        return {
            "backend": self.backend,
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
    return (_load_native if choice.backend == NATIVE else _load_torch)(choice, started_s)


def new_engine(
    loaded: LoadedForBench,
    runner: AnyRunner,
    *,
    max_sequences: int = 64,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    prefix_cache: bool = True,
    max_draft_tokens: int = 0,
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
            max_draft_tokens=max_draft_tokens,
            model_sha256=loaded.weights_sha256,
        ),
        observer=observer or NullObserver(),
        clock_ns=time.perf_counter_ns,
        fresh_seed=lambda: _SEED,
    )


def _load_native(choice: EngineChoice, started_s: float) -> LoadedForBench:
    """As the worker does."""
    from runtime.backend import BackendSettings, load_backend

    settings = BackendSettings(
        num_threads=choice.threads,
        precision=choice.precision,
        kv_dtype=choice.kv_dtype,
        block_size=BLOCK_SIZE,
        max_batch_tokens=choice.max_batch_tokens,
    )
    backend = load_backend(choice.model, settings)
    if backend.kind != NATIVE:
        raise NotMeasurable("the compiled model cannot run this one; try --backend torch")
    return LoadedForBench(
        name=backend.name,
        weights_sha256=backend.weights_sha256,
        tokenizer=backend.tokenizer,
        max_context_tokens=backend.config.max_context_tokens,
        new_runner=backend.new_runner,
        sampler=backend.sampler,
        load_s=time.perf_counter() - started_s,
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
