"""How does a StepPlan become logits?  Loads a model file, owns the KV cache, runs the decoder."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from runtime.devices.base import Device
from runtime.errors import InvalidConfig
from runtime.kernels.registry import load_kernels
from runtime.models.config import ModelConfig
from runtime.models.decoder import Decoder, DecoderWeights, KVCache, StepInputs, rotations
from runtime.models.gguf_config import parse_config
from runtime.models.registry import find_architecture
from runtime.plan import Float32Array, StepPlan
from runtime.tokenizer import Tokenizer
from runtime.weights.gguf import GgufFile
from runtime.weights.source import TensorSource

Logits: TypeAlias = Float32Array  # (S, V)

_HASH_CHUNK_BYTES = 1 << 22
_HASH_RATIO = 0.25  # of the loading time, about
_KV_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model on a device, ready for any number of runners."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    weights_sha256: str  # of the whole file, hex
    weights: DecoderWeights
    device: Device


def load_model(
    path: Path, *, device: Device, on_progress: Callable[[float], None] | None = None
) -> LoadedModel:
    """Read, hash and dequantize a GGUF file; ``on_progress`` hears a ratio from 0 to 1.

    Digest and weights come from the same mapping of the file, which must not be written meanwhile.

    Raises: runtime.errors.ModelFileError, OSError.
    """
    report = on_progress or (lambda ratio: None)
    with GgufFile(path) as file:
        load_weights = find_architecture(file.metadata.get("general.architecture"))
        tokenizer = Tokenizer(file.metadata)
        config = parse_config(file.metadata, vocab_size=tokenizer.vocab_size)
        weights_sha256 = _sha256(file, lambda ratio: report(_HASH_RATIO * ratio))
        source = TensorSource(
            file, on_progress=lambda ratio: report(_HASH_RATIO + (1 - _HASH_RATIO) * ratio)
        )
        weights = load_weights(config, source, device)
        source.finish()
        name = file.metadata.get("general.name")
    return LoadedModel(
        name=name if isinstance(name, str) and name else path.stem,
        config=config,
        tokenizer=tokenizer,
        weights_sha256=weights_sha256,
        weights=weights,
        device=device,
    )


def count_blocks(config: ModelConfig, *, kv_cache_bytes: int, block_size: int) -> int:
    """How many KV cache blocks fit into ``kv_cache_bytes``."""
    items = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return kv_cache_bytes // (items * block_size * _KV_ITEM_BYTES)


class ModelRunner:
    """Runs steps for one engine; owned by one thread."""

    def __init__(self, model: LoadedModel, *, num_blocks: int, block_size: int = 16) -> None:
        """Reserve ``num_blocks`` blocks of KV cache. Raises: InvalidConfig."""
        if num_blocks < 1 or block_size < 1:
            raise InvalidConfig("the KV cache needs one block of one token at least")
        config, self._device = model.config, model.device
        self.vocab_size = config.vocab_size
        self.max_context_tokens = config.max_context_tokens
        self.num_blocks, self.block_size = num_blocks, block_size
        shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self._cache = KVCache(
            keys=tuple(self._device.zeros(shape) for _ in range(config.num_layers)),
            values=tuple(self._device.zeros(shape) for _ in range(config.num_layers)),
        )
        kernels = load_kernels(
            self._device.backends,
            num_threads=self._device.num_threads,
            head_dim=config.head_dim,
        )
        self._decoder = Decoder(config, model.weights, kernels)

    def run(self, plan: StepPlan) -> Logits:
        """Compute the plan's tokens; logits (S, V) of ``plan.logits_rows``, owned by the caller.

        Raises: ValueError or IndexError when the plan names tokens, slots or blocks out of range.
        """
        if plan.num_tokens == 0:
            return np.empty((0, self.vocab_size), np.float32)
        with self._device.inference():
            return self._device.download(self._decoder.forward(self._inputs(plan), self._cache))

    def _inputs(self, plan: StepPlan) -> StepInputs:
        upload, wide = self._device.upload, np.int64
        return StepInputs(
            token_ids=upload(plan.token_ids.astype(wide)),
            rotations=upload(rotations(self._decoder.config.rope_tables[0], plan.positions)),
            slots=upload(plan.slot_mapping),
            logits_rows=upload(plan.logits_rows.astype(wide)),
            attention=self._decoder.kernels.paged_attention.prepare(
                plan, num_blocks=self.num_blocks, block_size=self.block_size
            ),
        )


def _sha256(file: GgufFile, on_progress: Callable[[float], None]) -> str:
    digest, total = hashlib.sha256(), len(file.buffer)
    for start in range(0, total, _HASH_CHUNK_BYTES):
        digest.update(file.buffer[start : start + _HASH_CHUNK_BYTES])
        on_progress(min(1.0, (start + _HASH_CHUNK_BYTES) / total))
    return digest.hexdigest()
