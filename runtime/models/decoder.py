"""How does a decoder turn token rows into logits?  One forward pass with switches; the oracle.

Pre-norm blocks of grouped-query attention with rotary positions and a gated feed-forward layer
[Touvron et al. 2023]; what architectures change is data of ``ModelConfig``. Query, key and value
weights are stacked into one matrix, gate and up weights into another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.kernels.linear_fp8 import Fp8Matrix
from runtime.models.config import ModelConfig, RopeTable
from runtime.plan import Float32Array, Int32Array

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.devices.base import Device
    from runtime.kernels.linear import Weight
    from runtime.kernels.registry import Kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One block; matrices are (out, in). None: the architecture has no such weights."""

    attention_norm: Tensor
    qkv: Weight
    attention_output: Weight
    ffn_norm: Tensor
    gate_up: Weight
    down: Weight
    qkv_bias: Tensor | None = None
    q_norm: Tensor | None = None  # (head_dim,)
    k_norm: Tensor | None = None
    post_attention_norm: Tensor | None = None
    post_ffn_norm: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """``head`` is ``embedding`` itself when the model ties them."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    output_norm: Tensor
    head: Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """One StepPlan on the device."""

    token_ids: Tensor  # (T,) int64
    rotations: tuple[tuple[Tensor, Tensor], ...]  # see ``rotations``, for each rope table
    slots: Tensor  # (T,) int64
    logits_rows: Tensor  # (S,) int64
    attention: Any  # what the attention kernel prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCache:
    """Keys and values per layer: (N, block size, K, D) each."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class Decoder:
    """Weights and kernels of one model; holds no sequence state."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights, kernels: Kernels) -> None:
        self.config = config
        self.weights = weights
        self.kernels = kernels

    def forward(self, inputs: StepInputs, cache: KVCache) -> Tensor:
        """Logits (S, V) of ``inputs.logits_rows``; writes this step's keys and values."""
        config = self.config
        hidden = self.weights.embedding[inputs.token_ids]
        if config.embedding_scale != 1:
            hidden = hidden * config.embedding_scale
        for index, layer in enumerate(self.weights.layers):
            hidden = self._attention_block(hidden, layer, index, inputs, cache)
            hidden = self._ffn_block(hidden, layer)
        wanted = hidden[inputs.logits_rows]
        logits = self._normed_linear(wanted, self.weights.output_norm, self.weights.head)
        return _soft_capped(logits, config.final_softcap)

    def _attention_block(
        self,
        hidden: Tensor,
        layer: LayerWeights,
        index: int,
        inputs: StepInputs,
        cache: KVCache,
    ) -> Tensor:
        config = self.config
        num_heads, num_kv_heads = config.num_heads, config.num_kv_heads
        qkv = self._normed_linear(hidden, layer.attention_norm, layer.qkv)
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        heads = qkv.view(-1, num_heads + 2 * num_kv_heads, config.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            heads = self._normed_heads(heads, layer.q_norm, layer.k_norm)
        keys, values = cache.keys[index], cache.values[index]
        queries = self.kernels.rope_kv_write(
            heads,
            *inputs.rotations[config.layer_rope[index]],
            inputs.slots,
            keys,
            values,
            interleaved=config.rope_style == "interleaved",
        )
        attended = self.kernels.paged_attention.attend(
            inputs.attention,
            queries,
            keys,
            values,
            config.query_scale,
            window=config.windows[index],
            softcap=config.attention_softcap,
        ).flatten(1)
        return self._added(attended, layer.attention_output, layer.post_attention_norm, hidden)

    def _ffn_block(self, hidden: Tensor, layer: LayerWeights) -> Tensor:
        gate_up = self._normed_linear(hidden, layer.ffn_norm, layer.gate_up)
        inner = self.kernels.swiglu(gate_up, self.config.activation)
        return self._added(inner, layer.down, layer.post_ffn_norm, hidden)

    def _normed_linear(self, x: Tensor, norm: Tensor, weight: Weight) -> Tensor:
        if isinstance(weight, Fp8Matrix):
            rows = self.kernels.rms_norm_quantize(x, norm, self.config.eps)
            return self.kernels.linear_fp8(rows, weight, x.dtype)
        return self.kernels.linear(self._norm(x, norm), weight)

    def _added(self, x: Tensor, weight: Weight, post_norm: Tensor | None, hidden: Tensor) -> Tensor:
        if post_norm is None:
            return self.kernels.linear(x, weight, hidden)
        return self._norm(self.kernels.linear(x, weight), post_norm) + hidden

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.kernels.rms_norm(x, weight, self.config.eps)

    def _normed_heads(self, heads: Tensor, q_norm: Tensor, k_norm: Tensor) -> Tensor:
        """Each query and key head by itself. heads: (T, H + 2 K, D) -> the same, new."""
        import torch

        first_key = self.config.num_heads
        first_value = first_key + self.config.num_kv_heads
        queries = self._norm(heads[:, :first_key], q_norm)
        keys = self._norm(heads[:, first_key:first_value], k_norm)
        return torch.cat([queries, keys, heads[:, first_value:]], dim=1)


def rotations(table: RopeTable, positions: Int32Array) -> tuple[Float32Array, Float32Array]:
    """Cosines and sines of position * frequency, times the table's factor: (T, rotary_dim / 2).

    Computed in float64.
    """
    angles = np.outer(positions, table.inverse_frequencies)
    factor = table.attention_factor
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(
        np.float32
    )


def uploaded_rotations(
    device: Device, table: RopeTable, positions: Int32Array
) -> tuple[Tensor, Tensor]:
    """``rotations`` on the device, float32."""
    cosines, sines = rotations(table, positions)
    return device.upload(cosines), device.upload(sines)


def _soft_capped(x: Tensor, cap: float) -> Tensor:
    return x if cap == 0 else (x / cap).tanh() * cap
