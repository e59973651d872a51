"""What shape is the model of a GGUF file?  Parsed once from its metadata [ggml docs/gguf.md].

Where the metadata is silent, what llama.cpp assumes holds [llama.cpp src/models/*.cpp].
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.models import rope_tables
from runtime.models.config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    ModelConfig,
    Pooling,
    RopeTable,
    require_consistent,
)
from runtime.models.fields import Fields
from runtime.weights.errors import MalformedModelError, UnsupportedModelError

ROPE_FACTORS = "rope_freqs.weight"  # a divisor for each pair: Llama 3's scaling, evaluated
SHORT_FACTORS = "rope_factors_short.weight"
LONG_FACTORS = "rope_factors_long.weight"
FACTOR_TENSORS = (ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS)

Factors = Mapping[str, npt.NDArray[np.float32]]

# [llama.cpp include/llama.h, llama_pooling_type]: others are of models that are no decoders
_POOLINGS: dict[int, Pooling] = {1: "mean", 3: "last"}
_27B_LAYERS = {"gemma2": 46, "gemma3": 62}  # these scale queries by hidden size / heads


def parse_config(
    metadata: Mapping[str, object], *, vocab_size: int, factors: Factors | None = None
) -> ModelConfig:
    """The model that ``metadata`` states for its ``general.architecture``.

    ``factors`` are those of ``FACTOR_TENSORS`` that the file has.

    Raises: MalformedModelError, ModelLimitError; UnsupportedModelError for what would change the
    computation and is not implemented.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise MalformedModelError("general.architecture is missing")
    family = _FAMILIES.get(architecture)
    if family is None:
        raise UnsupportedModelError(f"the architecture is not one of {sorted(_FAMILIES)}")
    fields = Fields(metadata, architecture + ".")
    num_heads = fields.count("attention.head_count", MAX_HEADS)
    hidden_size = fields.count("embedding_length", MAX_WIDTH)
    num_layers = fields.count("block_count", MAX_LAYERS)
    head_dim = max(1, hidden_size // num_heads)
    head_dim = fields.count("attention.key_length", MAX_HEAD_DIM, default=head_dim)
    model = _Model(
        architecture=architecture,
        num_layers=num_layers,
        head_dim=head_dim,
        rotary_dim=fields.count("rope.dimension_count", MAX_HEAD_DIM, default=head_dim),
        hidden_size=hidden_size,
        num_heads=num_heads,
        max_context_tokens=fields.count("context_length", MAX_CONTEXT_TOKENS),
        factors=factors or {},
    )
    shape: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": vocab_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": fields.count("attention.head_count_kv", MAX_HEADS, default=num_heads),
        "head_dim": head_dim,
        "hidden_size": hidden_size,
        "ffn_size": fields.count("feed_forward_length", MAX_WIDTH),
        "max_context_tokens": model.max_context_tokens,
        "eps": fields.positive("attention.layer_norm_rms_epsilon"),
        "rope_style": "half",
        "rotary_dim": model.rotary_dim,
        "layer_rope": (0,) * num_layers,
        "windows": (0,) * num_layers,
        "query_scale": head_dim**-0.5,
        "pooling": _POOLINGS.get(fields.count_or_zero("pooling_type", 4), "none"),
    }
    config = ModelConfig(**(shape | family(fields, model)))
    require_consistent(config)
    _require_supported(config, fields)
    return config


def _require_supported(config: ModelConfig, fields: Fields) -> None:
    same = {"vocab_size": config.vocab_size, "attention.value_length": config.head_dim}
    for name, want in same.items():
        if fields.get(name) not in (None, want):
            raise UnsupportedModelError(f"{fields.prefix}{name} is not {want}")
    fields.require_unset("expert_count", "rope.scaling.alpha")
    if fields.get("attention.causal") is False:
        raise UnsupportedModelError("attention is not causal")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    architecture: str
    num_layers: int
    head_dim: int
    rotary_dim: int
    hidden_size: int
    num_heads: int
    max_context_tokens: int
    factors: Factors


def _llama(fields: Fields, model: _Model) -> dict[str, Any]:
    return {
        "rope_style": "interleaved",
        "rope_tables": (_scaled_table(fields, model),),
        "windows": (_window(fields),) * model.num_layers,
    }


def _smollm3(fields: Fields, model: _Model) -> dict[str, Any]:
    """Every fourth layer has no positions: it turns by nothing."""
    return _llama(fields, model) | {
        "rope_tables": (_scaled_table(fields, model), rope_tables.still(model.rotary_dim)),
        "layer_rope": tuple(int((layer + 1) % 4 == 0) for layer in range(model.num_layers)),
    }


def _qwen2(fields: Fields, model: _Model) -> dict[str, Any]:
    fields.require_unset("attention.sliding_window")
    return {"rope_tables": (_scaled_table(fields, model),), "qkv_bias": True}


def _qwen3(fields: Fields, model: _Model) -> dict[str, Any]:
    fields.require_unset("attention.sliding_window")
    return {"rope_tables": (_scaled_table(fields, model),), "qk_norm": True}


def _gemma2(fields: Fields, model: _Model) -> dict[str, Any]:
    window = _window(fields, default=4096)
    return _gemma(fields, model) | {
        "rope_tables": (_scaled_table(fields, model),),
        "windows": tuple(window * local for local in _local_layers(fields, model, period=2)),
        "attention_softcap": fields.positive_or_zero("attn_logit_softcapping", default=50.0),
        "final_softcap": fields.positive_or_zero("final_logit_softcapping", default=30.0),
    }


def _gemma3(fields: Fields, model: _Model) -> dict[str, Any]:
    window, local = _window(fields), _local_layers(fields, model, period=6)
    theta = fields.positive("rope.freq_base_swa", default=10_000.0)
    fields.require_unset("attn_logit_softcapping")
    return _gemma(fields, model) | {
        "qk_norm": True,
        "rope_tables": (_scaled_table(fields, model), rope_tables.plain(theta, model.rotary_dim)),
        "layer_rope": tuple(int(window > 0 and is_local) for is_local in local),
        "windows": tuple(window * is_local for is_local in local),
        "final_softcap": fields.positive_or_zero("final_logit_softcapping"),
    }


def _gemma(fields: Fields, model: _Model) -> dict[str, Any]:
    del fields
    scalar = model.head_dim
    if model.num_layers == _27B_LAYERS[model.architecture]:
        scalar = model.hidden_size // model.num_heads
    return {
        "query_scale": scalar**-0.5,
        "embedding_scale": model.hidden_size**0.5,
        "activation": "gelu_tanh",
        "post_norms": True,
    }


def _phi3(fields: Fields, model: _Model) -> dict[str, Any]:
    """LongRoPE runs with its short factors, so within the original context only."""
    window = fields.count_or_zero("attention.sliding_window", MAX_CONTEXT_TOKENS)
    switches: dict[str, Any] = {"windows": (window,) * model.num_layers}
    if SHORT_FACTORS not in model.factors:
        return switches | {"rope_tables": (_scaled_table(fields, model),)}
    original = _original_context(fields, model)
    theta = fields.positive("rope.freq_base", default=10_000.0)
    table = rope_tables.divided(
        rope_tables.plain(theta, model.rotary_dim), model.factors[SHORT_FACTORS].astype(np.float64)
    )
    sharper = rope_tables.longrope_attention_factor(model.max_context_tokens, original)
    table = RopeTable(
        inverse_frequencies=table.inverse_frequencies,
        attention_factor=fields.positive("rope.scaling.attn_factor", default=sharper),
    )
    return switches | {
        "rope_tables": (table,),
        "max_context_tokens": min(original, model.max_context_tokens),
    }


def _scaled_table(fields: Fields, model: _Model) -> RopeTable:
    theta = fields.positive("rope.freq_base", default=10_000.0)
    table = rope_tables.plain(theta, model.rotary_dim)
    if SHORT_FACTORS in model.factors or LONG_FACTORS in model.factors:
        raise UnsupportedModelError("the file has LongRoPE factors that are not used")
    if ROPE_FACTORS in model.factors:
        table = rope_tables.divided(table, model.factors[ROPE_FACTORS].astype(np.float64))
    # Without a type llama.cpp takes a factor for linear scaling.
    kind = fields.text("rope.scaling.type", default="linear")
    if kind == "none":
        return table
    if kind == "linear":
        return rope_tables.divided(table, fields.positive("rope.scaling.factor", default=1.0))
    if kind != "yarn" or ROPE_FACTORS in model.factors:
        raise UnsupportedModelError("the rotary scaling is not one of none, linear, yarn")
    fields.require_unset("rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor")
    given = fields.positive_or_zero("rope.scaling.yarn_attn_factor")
    return rope_tables.YarnScaling(
        factor=fields.positive("rope.scaling.factor"),
        original_context=_original_context(fields, model),
        beta_fast=fields.positive("rope.scaling.yarn_beta_fast", default=32.0),
        beta_slow=fields.positive("rope.scaling.yarn_beta_slow", default=1.0),
        attention_factor=given or None,
    ).apply(table, theta)


def _original_context(fields: Fields, model: _Model) -> int:
    name = "rope.scaling.original_context_length"
    return fields.count(name, MAX_CONTEXT_TOKENS, default=model.max_context_tokens)


def _window(fields: Fields, *, default: int = 0) -> int:
    name = "attention.sliding_window"
    if fields.get(name) is None:
        return default
    return fields.count_or_zero(name, MAX_CONTEXT_TOKENS)


def _local_layers(fields: Fields, model: _Model, *, period: int) -> list[bool]:
    """The last of every ``period`` layers is global, unless the file lists or counts them."""
    name = "attention.sliding_window_pattern"
    if not isinstance(fields.get(name), list):
        period = fields.count(name, MAX_LAYERS, default=period)
        return [(layer + 1) % period != 0 for layer in range(model.num_layers)]
    listed = fields.items(name, model.num_layers) or ()
    return [bool(is_local) for is_local in listed]


_FAMILIES: Mapping[str, Callable[[Fields, _Model], dict[str, Any]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": _phi3,
    "smollm3": _smollm3,
}
