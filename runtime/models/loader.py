"""Which tensors does a decoder need, and where do they go?  Names are GGUF's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runtime.models.config import ModelConfig
from runtime.models.decoder import DecoderWeights, LayerWeights

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.devices.base import Device
    from runtime.weights.source import TensorSource


def load_decoder(config: ModelConfig, source: TensorSource, device: Device) -> DecoderWeights:
    """Take every tensor, as float32. Raises: TensorMismatchError, MalformedModelError."""
    shape = (config.vocab_size, config.hidden_size)
    embedding = device.upload(source.take("token_embd.weight", shape))
    head = embedding
    if source.has("output.weight"):
        head = device.upload(source.take("output.weight", shape))
    layers = tuple(_load_layer(config, source, device, i) for i in range(config.num_layers))
    norm = device.upload(source.take("output_norm.weight", (config.hidden_size,)))
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
        return device.upload(source.take(named(part), shape))

    def stacked(widths: dict[str, int]) -> Tensor:
        parts = [(named(part), rows) for part, rows in widths.items()]
        return device.upload(source.take_rows(parts, hidden_size))

    bias = None
    if config.qkv_bias:
        names = ((f"blk.{index}.{part}.bias", rows) for part, rows in widths.items())
        bias = device.upload(np.concatenate([source.take(name, (rows,)) for name, rows in names]))
    return LayerWeights(
        attention_norm=take("attn_norm", hidden_size),
        qkv=stacked(widths),
        qkv_bias=bias,
        q_norm=take("attn_q_norm", head_dim) if config.qk_norm else None,
        k_norm=take("attn_k_norm", head_dim) if config.qk_norm else None,
        attention_output=take("attn_output", hidden_size, q_width),
        post_attention_norm=take("post_attention_norm", hidden_size) if config.post_norms else None,
        ffn_norm=take("ffn_norm", hidden_size),
        gate_up=stacked({"ffn_gate": ffn_size, "ffn_up": ffn_size}),
        down=take("ffn_down", hidden_size, ffn_size),
        post_ffn_norm=take("post_ffw_norm", hidden_size) if config.post_norms else None,
    )
