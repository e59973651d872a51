"""What runs a model on this machine's CPU?  The compiled model, else plain torch."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runtime.checkpoint import Progress
from runtime.interfaces import Runner, TokenSampler
from runtime.models.config import ModelConfig
from runtime.tokenizer import Tokenizer
from runtime.weights.errors import MalformedModelError, UnsupportedModelError

if TYPE_CHECKING:
    from runtime.embedder import Embedder

logger = logging.getLogger(__name__)

MAX_EMBEDDED_TOKENS: Final = 8192  # of one text: what embedding models are trained for


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """``num_threads`` 0 takes every usable CPU, ``max_context_tokens`` 0 the model's own limit.

    Without the compiled module all is float32.
    """

    num_threads: int = 0
    quantize: str = "none"
    precision: str = "int8"
    kv_dtype: str = "bf16"
    block_size: int = 16
    max_batch_tokens: int = 512
    max_context_tokens: int = 0

    def context_of(self, config: ModelConfig) -> int:
        return min(self.max_context_tokens or config.max_context_tokens, config.max_context_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A loaded model; ``new_runner`` takes the number of blocks of its KV cache."""

    kind: str  # native or torch
    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    weights_sha256: str
    new_runner: Callable[[int], Runner[Any]]
    count_blocks: Callable[[int], int]  # how many fit into so many bytes
    sampler: TokenSampler[Any]
    embedder: "Embedder | None" = None  # of a model that says how to pool


def load_backend(
    path: Path, settings: BackendSettings, on_progress: Progress | None = None
) -> Backend:
    """Blocks for as long as the model takes. Raises: RuntimeFault, OSError."""
    backend = _load_fastest(path, settings, on_progress)
    if backend.config.pooling == "none":
        return backend
    return replace(backend, embedder=_load_embedder(path, settings, backend))


def _load_fastest(path: Path, settings: BackendSettings, on_progress: Progress | None) -> Backend:
    try:
        from runtime import native_runner  # noqa: F401 - is the compiled module there?
    except ImportError:
        logger.warning("the compiled module is missing: torch computes, slowly")
        return _load_torch(path, settings, on_progress)
    try:
        return _load_native(path, settings, on_progress)
    except UnsupportedModelError:
        # Sizes that no kernel has, or what torch refuses, too.
        return _load_torch(path, settings, on_progress)


def _load_embedder(path: Path, settings: BackendSettings, backend: Backend) -> "Embedder":
    """A second copy of the weights, since the compiled model tells no hidden states."""
    from runtime.devices.registry import open_device
    from runtime.embedder import Embedder
    from runtime.model_runner import load_model

    device = open_device("cpu", num_threads=settings.num_threads)
    model = load_model(path, device=device, quantize=settings.quantize)
    if model.weights_sha256 != backend.weights_sha256:
        raise MalformedModelError("the model file has changed while it was loaded")
    return Embedder(
        model,
        max_tokens=min(settings.context_of(model.config), MAX_EMBEDDED_TOKENS),
        max_batch_tokens=settings.max_batch_tokens,
    )


def _load_native(path: Path, settings: BackendSettings, on_progress: Progress | None) -> Backend:
    from runtime.native_runner import (
        NativeRunner,
        NativeSampler,
        count_native_blocks,
        load_native_model,
    )

    model = load_native_model(
        path,
        num_threads=settings.num_threads,
        quantize=settings.quantize,
        precision=settings.precision,
        on_progress=on_progress,
    )
    return Backend(
        kind="native",
        name=model.name,
        config=model.config,
        tokenizer=model.tokenizer,
        weights_sha256=model.weights_sha256,
        new_runner=lambda num_blocks: NativeRunner(
            model,
            num_blocks=num_blocks,
            block_size=settings.block_size,
            kv_dtype=settings.kv_dtype,
            max_batch_tokens=settings.max_batch_tokens,
            max_context_tokens=settings.context_of(model.config),
        ),
        count_blocks=lambda kv_cache_bytes: count_native_blocks(
            model.config,
            kv_cache_bytes=kv_cache_bytes,
            block_size=settings.block_size,
            kv_dtype=settings.kv_dtype,
        ),
        sampler=NativeSampler(),
    )


def _load_torch(path: Path, settings: BackendSettings, on_progress: Progress | None) -> Backend:
    from runtime.devices.registry import open_device
    from runtime.model_runner import ModelRunner, count_blocks, load_model
    from runtime.sampler import Sampler

    device = open_device("cpu", num_threads=settings.num_threads)
    model = load_model(path, device=device, quantize=settings.quantize, on_progress=on_progress)
    return Backend(
        kind="torch",
        name=model.name,
        config=model.config,
        tokenizer=model.tokenizer,
        weights_sha256=model.weights_sha256,
        new_runner=lambda num_blocks: ModelRunner(
            model,
            num_blocks=num_blocks,
            block_size=settings.block_size,
            max_context_tokens=settings.context_of(model.config),
        ),
        count_blocks=lambda kv_cache_bytes: count_blocks(
            model.config, kv_cache_bytes=kv_cache_bytes, block_size=settings.block_size
        ),
        sampler=Sampler(),
    )
