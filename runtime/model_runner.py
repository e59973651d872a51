"""How does a StepPlan become logits?  Loads a model file, owns the KV cache, runs the decoder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from runtime.decode_graphs import DecodeGraphs
from runtime.devices.base import Device
from runtime.errors import InvalidConfig
from runtime.kernels.registry import load_kernels
from runtime.loaded import Loaded, load_weights
from runtime.models.config import ModelConfig
from runtime.models.decoder import Decoder, DecoderWeights, KVCache, StepInputs, uploaded_rotations
from runtime.models.loader import load_decoder
from runtime.plan import Float32Array, StepPlan

Logits: TypeAlias = Float32Array  # (S, V)

_KV_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(Loaded[DecoderWeights]):
    """A model on a device, ready for any number of runners."""

    device: Device


def load_model(
    path: Path,
    *,
    device: Device,
    quantize: str = "none",
    on_progress: Callable[[float], None] | None = None,
) -> LoadedModel:
    """Read, hash and dequantize a GGUF file or a safetensors folder.

    ``quantize`` none, int8 or int4: see Checkpoint.source. ``on_progress`` hears a ratio, 0 to 1.

    Raises: runtime.errors.ModelFileError, InvalidConfig, OSError.
    """
    loaded = load_weights(
        path,
        lambda config, source: load_decoder(config, source, device),
        quantize=quantize,
        on_progress=on_progress,
    )
    return LoadedModel(
        name=loaded.name,
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        weights_sha256=loaded.weights_sha256,
        weights=loaded.weights,
        device=device,
    )


def count_blocks(
    config: ModelConfig, *, kv_cache_bytes: int, block_size: int, item_bytes: int = _KV_ITEM_BYTES
) -> int:
    """How many KV cache blocks fit into ``kv_cache_bytes``; ``item_bytes`` is the device's."""
    items = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return kv_cache_bytes // (items * block_size * item_bytes)


class ModelRunner:
    """Runs steps for one engine; owned by one thread."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        max_context_tokens: int = 0,
    ) -> None:
        """Reserve ``num_blocks`` blocks of KV cache; ``max_context_tokens`` 0: the model's own.

        Raises: InvalidConfig.
        """
        if num_blocks < 1 or block_size < 1:
            raise InvalidConfig("the KV cache needs one block of one token at least")
        config, self._device = model.config, model.device
        self.vocab_size = config.vocab_size
        self.max_context_tokens = max_context_tokens or config.max_context_tokens
        self.num_blocks, self.block_size = num_blocks, block_size
        captures = self._device.captures
        scratch_blocks = 1 if captures else 0  # for rows that only fill a recorded step
        shape = (num_blocks + scratch_blocks, block_size, config.num_kv_heads, config.head_dim)
        self._cache = KVCache(
            keys=tuple(self._device.zeros(shape) for _ in range(config.num_layers)),
            values=tuple(self._device.zeros(shape) for _ in range(config.num_layers)),
        )
        kernels = load_kernels(self._device.backends)
        self._decoder = Decoder(config, model.weights, kernels)
        self._graphs: DecodeGraphs | None = None
        if captures:
            self._graphs = DecodeGraphs(
                lambda inputs: self._decoder.forward(inputs, self._cache),
                device=self._device,
                config=config,
                max_blocks=min(num_blocks, -(-config.max_context_tokens // block_size)),
                block_size=block_size,
                scratch_block=num_blocks,
            )

    def run(self, plan: StepPlan) -> Logits:
        """Compute the plan's tokens; logits (S, V) of ``plan.logits_rows``, owned by the caller.

        Raises: ValueError or IndexError when the plan names tokens, slots or blocks out of range.
        """
        if plan.num_tokens == 0:
            return np.empty((0, self.vocab_size), np.float32)
        self._require_in_range(plan)
        with self._device.inference():
            if self._graphs is not None and self._graphs.takes(plan):
                logits = self._graphs.run(plan)
            else:
                logits = self._decoder.forward(self._inputs(plan), self._cache)
            return self._device.download(logits)

    def _require_in_range(self, plan: StepPlan) -> None:
        """On a GPU nothing else would find a wrong index."""
        limits = (
            ("token id", plan.token_ids, self.vocab_size),
            ("slot", plan.slot_mapping, self.num_blocks * self.block_size),
            ("logits row", plan.logits_rows, plan.num_tokens),
        )
        for what, values, limit in limits:
            if values.size and not 0 <= values.min() <= values.max() < limit:
                raise IndexError(f"a {what} is outside 0 to {limit - 1}")

    def _inputs(self, plan: StepPlan) -> StepInputs:
        upload, wide = self._device.upload, np.int64
        return StepInputs(
            token_ids=upload(plan.token_ids.astype(wide)),
            rotations=tuple(
                uploaded_rotations(self._device, table, plan.positions)
                for table in self._decoder.config.rope_tables
            ),
            slots=upload(plan.slot_mapping),
            logits_rows=upload(plan.logits_rows.astype(wide)),
            attention=self._decoder.kernels.paged_attention.prepare(
                plan, num_blocks=self.num_blocks, block_size=self.block_size
            ),
        )
