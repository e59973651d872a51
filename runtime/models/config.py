"""What shape is the model, and which switches does its forward pass have?

One decoder runs every architecture; what differs is data here. A parser (``gguf_config``,
``hf_config``) fills it from a file, bounded and consistent or refused.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import MalformedModelError, ModelLimitError, UnsupportedModelError

MAX_LAYERS = 512  # the deepest published models have fewer than 130
MAX_WIDTH = 1 << 17  # hidden and feed-forward sizes
MAX_HEADS = 1024
MAX_HEAD_DIM = 1024
MAX_VOCABULARY = 1 << 20
MAX_CONTEXT_TOKENS = 1 << 20

RopeStyle: TypeAlias = Literal["interleaved", "half"]
Activation: TypeAlias = Literal["silu", "gelu_tanh"]
Pooling: TypeAlias = Literal["none", "mean", "last"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RopeTable:
    """Rotation of a position: pair j turns by ``position * inverse_frequencies[j]``.

    All scaling is folded in. ``inverse_frequencies``: (rotary_dim / 2,) float64, radians per
    position. Rotated items are multiplied by ``attention_factor`` (YaRN and LongRoPE, else 1).
    """

    inverse_frequencies: npt.NDArray[np.float64]
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelConfig:
    """Sizes and switches of one decoder; every query head group shares one KV head.

    ``rope_style``: a pair is items (2j, 2j + 1) of a head, ``interleaved``, or items
    (j, j + rotary_dim / 2), ``half``; items from ``rotary_dim`` on are not rotated.
    ``layer_rope``: the index into ``rope_tables``, per layer.
    ``windows``: per layer, 0 sees all; W: position i sees j with i - W < j <= i.
    Soft caps bound scores and logits to cap * tanh(x / cap); 0 means none.
    ``post_norms``: attention and feed-forward outputs are normed before they are added.
    ``pooling``: which hidden states a text's embedding is of; "none": it makes no embeddings.
    Norm weights multiply as they are: Gemma's 1 + w is folded in when weights are loaded.
    """

    architecture: str
    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    ffn_size: int
    max_context_tokens: int
    eps: float
    rope_style: RopeStyle
    rotary_dim: int
    rope_tables: tuple[RopeTable, ...]
    layer_rope: tuple[int, ...]
    windows: tuple[int, ...]
    query_scale: float
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    embedding_scale: float = 1.0
    activation: Activation = "silu"
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    pooling: Pooling = "none"


def require_consistent(config: ModelConfig) -> None:
    """What no parser may get past, whatever its file said.

    Raises: MalformedModelError, ModelLimitError, UnsupportedModelError.
    """
    if not 1 <= config.vocab_size <= MAX_VOCABULARY:
        raise ModelLimitError(f"the vocabulary has {config.vocab_size} tokens")
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise MalformedModelError("heads, KV heads and head size do not fit each other")
    if config.num_heads * config.head_dim > MAX_WIDTH:
        raise ModelLimitError("the query heads are wider than a layer may be")
    if config.rotary_dim % 2 or not 0 < config.rotary_dim <= config.head_dim:
        raise UnsupportedModelError(f"{config.rotary_dim} of {config.head_dim} items are rotated")
    numbers = (config.query_scale, config.attention_softcap, config.final_softcap, config.eps)
    if not all(isfinite(number) and number >= 0 for number in numbers):
        raise MalformedModelError("a scale or soft cap is negative or not finite")
    for table in config.rope_tables:
        frequencies = table.inverse_frequencies
        if frequencies.shape != (config.rotary_dim // 2,) or not np.isfinite(frequencies).all():
            raise MalformedModelError("the rotary frequencies do not fit the head")
