"""Which tensors does a decoder need, and where do they go?  Names are GGUF's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runtime.models.config import ModelConfig
from runtime.models.decoder import DecoderWeights, LayerWeights

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.devices.base import Device
    from runtime.kernels.linear import Weight
    from runtime.weights.source import TensorSource


def load_decoder(config: ModelConfig, source: TensorSource, device: Device) -> DecoderWeights:
    """Take every tensor as the device wants it.

    Raises: TensorMismatchError, MalformedModelError.
    """
    shape = (config.vocab_size, config.hidden_size)
    embedding = device.weights(source.take("token_embd.weight", shape))
    head: Weight = embedding
    if source.has("output.weight"):
        head = device.matrix([source.raw("output.weight", shape)])
    layers = tuple(_load_layer(config, source, device, i) for i in range(config.num_layers))
    norm = device.weights(source.take("output_norm.weight", (config.hidden_size,)))
    source.finish()
    return DecoderWeights(embedding=embedding, layers=layers, output_norm=norm, head=head)


def _load_layer(
    config: ModelConfig, source: TensorSource, device: Device, index: int
) -> LayerWeights:
    hidden_size, ffn_size, head_dim = config.hidden_size, config.ffn_size, config.head_dim
    q_width, kv_width = config.num_heads * head_dim, config.num_kv_heads * head_dim
    widths = {"attn_q": q_width, "attn_k": kv_width, "attn_v": kv_width}

    def named(part: str) -> str:
        return f"blk.{index}.{part}.weight"

    def take(part: str, *shape: int) -> Tensor:
        return device.weights(source.take(named(part), shape))

    def matrix(rows: dict[str, int], columns: int) -> Weight:
        return device.matrix([source.raw(named(part), (n, columns)) for part, n in rows.items()])

    bias = None
    if config.qkv_bias:
        names = ((f"blk.{index}.{part}.bias", rows) for part, rows in widths.items())
        bias = device.weights(np.concatenate([source.take(name, (rows,)) for name, rows in names]))
    return LayerWeights(
        attention_norm=take("attn_norm", hidden_size),
        qkv=matrix(widths, hidden_size),
        qkv_bias=bias,
        q_norm=take("attn_q_norm", head_dim) if config.qk_norm else None,
        k_norm=take("attn_k_norm", head_dim) if config.qk_norm else None,
        attention_output=matrix({"attn_output": hidden_size}, q_width),
        post_attention_norm=take("post_attention_norm", hidden_size) if config.post_norms else None,
        ffn_norm=take("ffn_norm", hidden_size),
        gate_up=matrix({"ffn_gate": ffn_size, "ffn_up": ffn_size}, hidden_size),
        down=matrix({"ffn_down": hidden_size}, ffn_size),
        post_ffn_norm=take("post_ffw_norm", hidden_size) if config.post_norms else None,
    )
