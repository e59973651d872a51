"""What does each model type of config.json switch on?  One function and one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.models import rope_tables
from runtime.models.config import MAX_CONTEXT_TOKENS, MAX_LAYERS, MAX_WIDTH
from runtime.models.fields import Fields
from runtime.models.hf_rope import (
    FULL,
    SLIDING,
    Sizes,
    local_global_tables,
    longrope_table,
    scaled_table,
)
from runtime.weights.errors import UnsupportedModelError


def _llama(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    return {"rope_tables": (scaled_table(fields, fields, sizes),)}


def _mistral(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    # A missing window means 4,096 to transformers, null means none.
    window = fields.count_or_zero("sliding_window", MAX_CONTEXT_TOKENS)
    if "sliding_window" not in fields.values:
        window = 4096
    return _llama(fields, sizes) | {"windows": (window,) * sizes.num_layers}


def _qwen2(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    return _llama(fields, sizes) | {"qkv_bias": True, "windows": _qwen_windows(fields, sizes)}


def _qwen3(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    return _llama(fields, sizes) | {"qk_norm": True, "windows": _qwen_windows(fields, sizes)}


def _qwen_windows(fields: Fields, sizes: Sizes) -> tuple[int, ...]:
    if not fields.flag("use_sliding_window"):
        return (0,) * sizes.num_layers
    window = fields.count("sliding_window", MAX_CONTEXT_TOKENS, default=4096)
    first = fields.count_or_zero("max_window_layers", 10 * MAX_LAYERS)
    if fields.get("max_window_layers") is None:
        first = 28
    kinds = [SLIDING if layer >= first else FULL for layer in range(sizes.num_layers)]
    return tuple(window * (kind == SLIDING) for kind in _layer_types(fields, sizes, kinds))


def _gemma2(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    kinds = _layer_types(fields, sizes, _every(2, sizes.num_layers))
    return _gemma(fields, sizes, kinds) | {
        "rope_tables": (scaled_table(fields, fields, sizes),),
        "attention_softcap": _softcap(fields, "attn_logit_softcapping", 50.0),
        "final_softcap": _softcap(fields, "final_logit_softcapping", 30.0),
    }


def _gemma3(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    name = "sliding_window_pattern"
    pattern = fields.count(
        "_" + name, MAX_LAYERS, default=fields.count(name, MAX_LAYERS, default=6)
    )
    kinds = _layer_types(fields, sizes, _every(pattern, sizes.num_layers))
    return _gemma(fields, sizes, kinds) | {
        "qk_norm": True,
        "rope_tables": local_global_tables(fields, sizes),
        "layer_rope": tuple(int(kind == SLIDING) for kind in kinds),
        "attention_softcap": _softcap(fields, "attn_logit_softcapping", 0.0),
        "final_softcap": _softcap(fields, "final_logit_softcapping", 0.0),
    }


def _gemma(fields: Fields, sizes: Sizes, kinds: list[str]) -> dict[str, Any]:
    window = fields.count("sliding_window", MAX_CONTEXT_TOKENS, default=4096)
    return {
        "windows": tuple(window * (kind == SLIDING) for kind in kinds),
        "query_scale": fields.positive("query_pre_attn_scalar", default=256) ** -0.5,
        "embedding_scale": fields.count("hidden_size", MAX_WIDTH) ** 0.5,
        "activation": "gelu_tanh",
        "post_norms": True,
    }


def _phi3(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    table, max_context_tokens = longrope_table(fields, sizes)
    window = fields.count_or_zero("sliding_window", MAX_CONTEXT_TOKENS)
    return {
        "rope_tables": (table,),
        "rotary_dim": 2 * len(table.inverse_frequencies),
        "max_context_tokens": max_context_tokens,
        "windows": (window,) * sizes.num_layers,
    }


def _smollm3(fields: Fields, sizes: Sizes) -> dict[str, Any]:
    """Every fourth layer has no positions: it turns by nothing."""
    interval = fields.count("no_rope_layer_interval", MAX_LAYERS, default=4)
    default = [(layer + 1) % interval != 0 for layer in range(sizes.num_layers)]
    given = fields.items("no_rope_layers", sizes.num_layers)
    turning = default if given is None else [flag in (1, True) for flag in given]
    table = scaled_table(fields, fields, sizes, default_theta=2_000_000.0)
    if fields.flag("use_sliding_window"):
        raise UnsupportedModelError("the windows of a smollm3 model are not run")
    return {
        "rope_tables": (table, rope_tables.still(sizes.head_dim)),
        "layer_rope": tuple(int(not turns) for turns in turning),
    }


def _softcap(fields: Fields, name: str, default: float) -> float:
    """Null means none, absent means the default."""
    return fields.positive_or_zero(name) if name in fields.values else default


def _every(period: int, num_layers: int) -> list[str]:
    """Each ``period``-th layer is global."""
    return [SLIDING if (layer + 1) % period else FULL for layer in range(num_layers)]


def _layer_types(fields: Fields, sizes: Sizes, default: list[str]) -> list[str]:
    given = fields.items("layer_types", sizes.num_layers)
    kinds = default if given is None else [str(kind) for kind in given]
    if not {FULL, SLIDING}.issuperset(kinds):
        raise UnsupportedModelError("layer_types has an unknown kind of layer")
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    architecture: str  # GGUF's name
    switches: Callable[[Fields, Sizes], dict[str, Any]]
    activation: str = "silu"
    head_dim: int = 0  # 0: hidden size / heads
    eps: float = 1e-6
    ties_embeddings: bool = False
    defaults: dict[str, object] = field(default_factory=dict)  # what published files leave out


FAMILIES: Mapping[str, Family] = {
    "llama": Family(architecture="llama", switches=_llama),
    "mistral": Family(architecture="llama", switches=_mistral),
    "qwen2": Family(architecture="qwen2", switches=_qwen2),
    "qwen3": Family(architecture="qwen3", switches=_qwen3, head_dim=128),
    "gemma2": Family(
        architecture="gemma2",
        switches=_gemma2,
        activation="gelu_pytorch_tanh",
        head_dim=256,
        ties_embeddings=True,
    ),
    "gemma3_text": Family(
        architecture="gemma3",
        switches=_gemma3,
        activation="gelu_pytorch_tanh",
        head_dim=256,
        ties_embeddings=True,
        defaults={
            "vocab_size": 262_208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
        },
    ),
    "smollm3": Family(architecture="smollm3", switches=_smollm3, ties_embeddings=True),
    "phi3": Family(architecture="phi3", switches=_phi3, eps=1e-5),
}
