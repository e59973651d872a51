"""How does a StepPlan become logits on a CPU?  One call of the compiled model, without torch."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from runtime import _native
from runtime.errors import InvalidConfig
from runtime.loaded import Loaded, load_weights
from runtime.models.config import ModelConfig
from runtime.native_weights import PRECISIONS, pack_weights
from runtime.plan import Float32Array, StepPlan
from runtime.sampler import (
    BROKEN_ROW,
    Ids,
    LogprobsWanted,
    SampleRow,
    TokenLogprobs,
    row_logprobs,
    sample_row_or_none,
)

KV_DTYPES = ("bf16", "int8", "f32")

__all__ = [
    "KV_DTYPES",
    "PRECISIONS",
    "LoadedNativeModel",
    "NativeLogits",
    "NativeRunner",
    "NativeSampler",
    "count_native_blocks",
    "load_native_model",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedNativeModel(Loaded[_native.ModelWeights]):
    """Packed weights and threads, ready for any number of runners (one step at a time)."""

    cpu: _native.Cpu
    precision: str


def load_native_model(
    path: Path,
    *,
    num_threads: int = 0,
    isa: str = "",
    quantize: str = "none",
    precision: str = "int8",
    on_progress: Callable[[float], None] | None = None,
) -> LoadedNativeModel:
    """Read, hash and repack a GGUF file or a safetensors folder.

    ``num_threads`` 0 takes every CPU that this process may run on, ``isa`` empty the best one;
    ``quantize`` none, int8 or int4: see ``Checkpoint.source``; ``precision``: see
    ``pack_weights``. ``on_progress`` hears a ratio from 0 to 1.

    Raises: runtime.errors.ModelFileError, InvalidConfig, OSError.
    """
    cpu = _native.Cpu(num_threads or len(os.sched_getaffinity(0)), isa)
    loaded = load_weights(
        path,
        lambda config, source: pack_weights(cpu, config, source, precision=precision),
        quantize=quantize,
        on_progress=on_progress,
    )
    return LoadedNativeModel(
        name=loaded.name,
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        weights_sha256=loaded.weights_sha256,
        weights=loaded.weights,
        cpu=cpu,
        precision=precision,
    )


def count_native_blocks(
    config: ModelConfig, *, kv_cache_bytes: int, block_size: int, kv_dtype: str
) -> int:
    """How many KV cache blocks fit into ``kv_cache_bytes``. Raises: InvalidConfig."""
    _require_kv_dtype(kv_dtype)
    return kv_cache_bytes // _native.kv_block_bytes(
        config.num_layers, config.num_kv_heads, config.head_dim, block_size, kv_dtype
    )


class NativeLogits:
    """Logits of one step, valid until the runner's next one."""

    def __init__(self, model: _native.Model, cpu: _native.Cpu) -> None:
        self._model, self.cpu = model, cpu
        self.best_ids, self.broken_rows = model.best()

    @cached_property
    def rows(self) -> Float32Array:
        """(S, V) float32, a view of the runner's own memory."""
        return self._model.logits()

    def __len__(self) -> int:
        return len(self.best_ids)


class NativeRunner:
    """Runs steps for one engine; owned by one thread."""

    is_batch_invariant = True  # for sequences that ask: their sums have one order in any company

    def __init__(
        self,
        model: LoadedNativeModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        kv_dtype: str = "bf16",
        max_batch_tokens: int = 512,
        max_context_tokens: int = 0,
    ) -> None:
        """Reserve ``num_blocks`` blocks of KV cache, which cost memory as they are used.

        Scratch is for ``max_batch_tokens``; it grows when a plan has more. Sequences may have
        ``max_context_tokens``, 0: the model's own limit.

        Raises: InvalidConfig.
        """
        _require_kv_dtype(kv_dtype)
        try:
            self._model = _native.Model(
                model.cpu,
                model.weights,
                num_blocks=num_blocks,
                block_size=block_size,
                kv_dtype=kv_dtype,
                max_batch_tokens=max_batch_tokens,
            )
        except ValueError as err:
            raise InvalidConfig(f"the KV cache cannot be had: {err}") from err
        self._cpu = model.cpu
        self.has_bulk = self._model.has_bulk
        self.vocab_size = model.config.vocab_size
        self.max_context_tokens = max_context_tokens or model.config.max_context_tokens
        self.num_blocks, self.block_size = num_blocks, block_size

    def run(self, plan: StepPlan) -> NativeLogits:
        """Compute the plan's tokens; logits of ``plan.logits_rows``.

        Raises: ValueError or IndexError when the plan contradicts itself or names tokens, slots or
        blocks out of range; nothing is computed then.
        """
        self._model.step(
            plan.token_ids,
            plan.positions,
            plan.query_starts,
            plan.context_lens,
            plan.prompt_lens,
            plan.batch_invariant,
            plan.block_tables,
            plan.slot_mapping,
            plan.logits_rows,
        )
        return NativeLogits(self._model, self._cpu)


@dataclass(frozen=True, slots=True)
class _NativeView:
    """``runtime.sampler.LogitsView`` in a few passes over the row; exponentials in float32."""

    logits: Float32Array
    cpu: _native.Cpu

    def largest(self, count: int) -> Ids:
        ids, _, _, _ = _native.largest(self.cpu, self.logits, count)
        return ids.astype(np.intp)

    def total(self, temperature: float, best: float) -> float:
        _, _, log_sum_exp, _ = _native.largest(self.cpu, self.logits, 0, 1 / temperature)
        return math.exp(log_sum_exp - best / temperature)

    def draw(self, temperature: float, best: float, point: float) -> int:
        return _native.draw(self.cpu, self.logits, best, 1 / temperature, point)


class NativeSampler:
    """Stateless; plain greedy rows cost nothing, their best logit is known already."""

    def sample(self, logits: NativeLogits, rows: Sequence[SampleRow]) -> list[int]:
        """One token id per row of ``logits``; BROKEN_ROW for one with NaN or infinity."""
        if len(logits) != len(rows):
            raise ValueError(f"{len(logits)} rows of logits for {len(rows)} sequences")
        broken = frozenset(logits.broken_rows)

        def view_of(one: Float32Array) -> _NativeView:
            return _NativeView(one, logits.cpu)

        def choose(idx: int, best_id: int, row: SampleRow) -> int:
            if idx in broken:
                return BROKEN_ROW
            if row.is_plain and row.params.is_greedy:
                return best_id
            return sample_row_or_none(logits.rows[idx], row, view_of)

        best_and_rows = zip(logits.best_ids, rows, strict=True)
        return [choose(idx, best_id, row) for idx, (best_id, row) in enumerate(best_and_rows)]

    def logprobs(
        self, logits: NativeLogits, wanted: Sequence[LogprobsWanted]
    ) -> list[TokenLogprobs]:
        """For rows of the ``logits`` that were sampled last, in the order of ``wanted``."""
        return [row_logprobs(logits.rows[one.row_idx], one) for one in wanted]


def _require_kv_dtype(kv_dtype: str) -> None:
    if kv_dtype not in KV_DTYPES:
        raise InvalidConfig(f"kv_dtype {kv_dtype!r} is not one of {KV_DTYPES}")
