"""How does a decoder turn token rows into logits?  One forward pass with switches; the oracle.

Pre-norm blocks of grouped-query attention with rotary positions and a gated feed-forward layer
[Touvron et al. 2023]; what architectures change is data of ``ModelConfig``. Query, key and value
weights are stacked into one matrix, gate and up weights into another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from runtime.models.config import ModelConfig, RopeTable
from runtime.plan import Int32Array

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.kernels.registry import Kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One block; matrices are (out, in). None: the architecture has no such weights."""

    attention_norm: Tensor
    qkv: Tensor
    attention_output: Tensor
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor
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
    head: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """One StepPlan on the device."""

    token_ids: Tensor  # (T,) int64
    rotations: tuple[Tensor, ...]  # per rope table (T, rotary_dim / 2) complex64
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
        wanted = self._norm(hidden[inputs.logits_rows], self.weights.output_norm)
        logits = self.kernels.linear(wanted, self.weights.head)
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
        qkv = self.kernels.linear(self._norm(hidden, layer.attention_norm), layer.qkv)
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        heads = qkv.view(-1, num_heads + 2 * num_kv_heads, config.head_dim)
        turned = heads[:, : num_heads + num_kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            turned = self._normed_heads(turned, layer.q_norm, layer.k_norm)
        turned = self.kernels.rope(
            turned, inputs.rotations[config.layer_rope[index]], config.rope_style
        )
        keys, values = cache.keys[index], cache.values[index]
        keys.flatten(0, 1).index_copy_(0, inputs.slots, turned[:, num_heads:])
        values.flatten(0, 1).index_copy_(0, inputs.slots, heads[:, num_heads + num_kv_heads :])
        attended = self.kernels.paged_attention.attend(
            inputs.attention,
            turned[:, :num_heads],
            keys,
            values,
            config.query_scale,
            window=config.windows[index],
            softcap=config.attention_softcap,
        ).flatten(1)
        return self._added(attended, layer.attention_output, layer.post_attention_norm, hidden)

    def _ffn_block(self, hidden: Tensor, layer: LayerWeights) -> Tensor:
        gate_up = self.kernels.linear(self._norm(hidden, layer.ffn_norm), layer.gate_up)
        inner = self.kernels.swiglu(gate_up, self.config.activation)
        return self._added(inner, layer.down, layer.post_ffn_norm, hidden)

    def _added(self, x: Tensor, weight: Tensor, post_norm: Tensor | None, hidden: Tensor) -> Tensor:
        if post_norm is None:
            return self.kernels.linear(x, weight, hidden)
        return self._norm(self.kernels.linear(x, weight), post_norm) + hidden

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.kernels.rms_norm(x, weight, self.config.eps)

    def _normed_heads(self, heads: Tensor, q_norm: Tensor, k_norm: Tensor) -> Tensor:
        """Each query and key head by itself. heads: (T, H + K, D) -> the same, new."""
        num_heads = self.config.num_heads
        normed = heads.new_empty(heads.shape)
        normed[:, :num_heads] = self._norm(heads[:, :num_heads], q_norm)
        normed[:, num_heads:] = self._norm(heads[:, num_heads:], k_norm)
        return normed


def rotations(table: RopeTable, positions: Int32Array) -> npt.NDArray[np.complex64]:
    """factor * exp(i * position * frequency): (T, rotary_dim / 2), computed in float64."""
    angles = np.outer(positions, table.inverse_frequencies)
    turned: npt.NDArray[np.complex128] = np.exp(1j * angles) * table.attention_factor
    return turned.astype(np.complex64)


def _soft_capped(x: Tensor, cap: float) -> Tensor:
    return x if cap == 0 else (x / cap).tanh() * cap
