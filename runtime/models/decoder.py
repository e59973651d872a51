"""How does a llama-style decoder turn token rows into logits?

Pre-norm blocks of grouped-query attention with rotary positions and SwiGLU [Touvron et al. 2023].
Query, key and value weights are stacked into one matrix, gate and up weights into another.
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

    from runtime.devices.base import Device
    from runtime.kernels.registry import Kernels
    from runtime.weights.source import TensorSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One block; matrices are (out, in)."""

    attention_norm: Tensor
    qkv: Tensor
    attention_output: Tensor
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor


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
    rotations: Tensor  # (T, D / 2) complex64, see ``rotations``
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
        self._scale = config.query_scale

    def forward(self, inputs: StepInputs, cache: KVCache) -> Tensor:
        """Logits (S, V) of ``inputs.logits_rows``; writes this step's keys and values."""
        rms_norm, linear, eps = self.kernels.rms_norm, self.kernels.linear, self.config.eps
        hidden = self.weights.embedding[inputs.token_ids]
        for layer, keys, values in zip(self.weights.layers, cache.keys, cache.values, strict=True):
            qkv = linear(rms_norm(hidden, layer.attention_norm, eps), layer.qkv)
            attended = self._attention(qkv, inputs, keys, values)
            hidden = linear(attended, layer.attention_output, hidden)
            gate_up = linear(rms_norm(hidden, layer.ffn_norm, eps), layer.gate_up)
            hidden = linear(self.kernels.swiglu(gate_up), layer.down, hidden)
        wanted = hidden[inputs.logits_rows]
        return linear(rms_norm(wanted, self.weights.output_norm, eps), self.weights.head)

    def _attention(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor) -> Tensor:
        num_heads, num_kv_heads = self.config.num_heads, self.config.num_kv_heads
        heads = qkv.view(-1, num_heads + 2 * num_kv_heads, self.config.head_dim)
        rotated = self.kernels.rope(heads[:, : num_heads + num_kv_heads], inputs.rotations)
        keys.flatten(0, 1).index_copy_(0, inputs.slots, rotated[:, num_heads:])
        values.flatten(0, 1).index_copy_(0, inputs.slots, heads[:, num_heads + num_kv_heads :])
        return self.kernels.paged_attention.attend(
            inputs.attention, rotated[:, :num_heads], keys, values, self._scale
        ).flatten(1)


def rotations(table: RopeTable, positions: Int32Array) -> npt.NDArray[np.complex64]:
    """factor * exp(i * position * frequency): (T, rotary_dim / 2), computed in float64."""
    angles = np.outer(positions, table.inverse_frequencies)
    turned: npt.NDArray[np.complex128] = np.exp(1j * angles) * table.attention_factor
    return turned.astype(np.complex64)


def load_llama(config: ModelConfig, source: TensorSource, device: Device) -> DecoderWeights:
    """Take the tensors of GGUF's ``llama`` architecture. Raises: TensorMismatchError."""
    hidden_size = config.hidden_size
    embedding = device.upload(source.take("token_embd.weight", (config.vocab_size, hidden_size)))
    head = embedding
    if source.has("output.weight"):
        head = device.upload(source.take("output.weight", (config.vocab_size, hidden_size)))
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(_load_layer(config, source, device, i) for i in range(config.num_layers)),
        output_norm=device.upload(source.take("output_norm.weight", (hidden_size,))),
        head=head,
    )


def _load_layer(
    config: ModelConfig, source: TensorSource, device: Device, index: int
) -> LayerWeights:
    name, hidden_size = f"blk.{index}.", config.hidden_size
    q_width = config.num_heads * config.head_dim
    kv_width = config.num_kv_heads * config.head_dim
    qkv = [(name + "attn_q.weight", q_width)]
    qkv += [(name + "attn_k.weight", kv_width), (name + "attn_v.weight", kv_width)]
    gate_up = [(name + part, config.ffn_size) for part in ("ffn_gate.weight", "ffn_up.weight")]
    output = source.take(name + "attn_output.weight", (hidden_size, q_width))
    down = source.take(name + "ffn_down.weight", (hidden_size, config.ffn_size))
    return LayerWeights(
        attention_norm=device.upload(source.take(name + "attn_norm.weight", (hidden_size,))),
        qkv=device.upload(source.take_rows(qkv, hidden_size)),
        attention_output=device.upload(output),
        ffn_norm=device.upload(source.take(name + "ffn_norm.weight", (hidden_size,))),
        gate_up=device.upload(source.take_rows(gate_up, hidden_size)),
        down=device.upload(down),
    )
