"""What shape is the model of a Hugging Face folder?  Parsed once from its config.json.

Names and defaults are those of ``transformers`` [configuration_<model_type>.py]: published files
leave out what equals a default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.models import rope_tables
from runtime.models.config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    ModelConfig,
    RopeTable,
    require_consistent,
)
from runtime.models.fields import Fields
from runtime.weights.errors import MalformedModelError, UnsupportedModelError

_FULL, _SLIDING = "full_attention", "sliding_attention"
_REFUSED = ("quantization_config", "attention_bias", "mlp_bias", "use_bidirectional_attention")


def parse_config(document: Mapping[str, object]) -> ModelConfig:
    """The model that config.json describes.

    Raises: MalformedModelError, ModelLimitError, UnsupportedModelError.
    """
    fields = Fields(document)
    family = _FAMILIES.get(model_type := fields.text("model_type"))
    if family is None:
        raise UnsupportedModelError(f"the model type is not one of {sorted(_FAMILIES)}")
    fields.require_unset(*_REFUSED)
    key = "hidden_activation" if model_type.startswith("gemma") else "hidden_act"
    if fields.text(key, default=family.activation) != family.activation:
        raise UnsupportedModelError(f"the activation is not {family.activation}")
    num_heads = fields.count("num_attention_heads", MAX_HEADS)
    hidden_size = fields.count("hidden_size", MAX_WIDTH)
    head_dim = family.head_dim or max(1, hidden_size // num_heads)
    sizes = _Sizes(
        num_layers=fields.count("num_hidden_layers", MAX_LAYERS),
        head_dim=fields.count("head_dim", MAX_HEAD_DIM, default=head_dim),
        max_context_tokens=fields.count("max_position_embeddings", MAX_CONTEXT_TOKENS),
    )
    shape: dict[str, Any] = {
        "architecture": family.architecture,
        "vocab_size": fields.count("vocab_size", MAX_VOCABULARY),
        "num_layers": sizes.num_layers,
        "num_heads": num_heads,
        "num_kv_heads": fields.count("num_key_value_heads", MAX_HEADS, default=num_heads),
        "head_dim": sizes.head_dim,
        "hidden_size": hidden_size,
        "ffn_size": fields.count("intermediate_size", MAX_WIDTH),
        "max_context_tokens": sizes.max_context_tokens,
        "eps": fields.positive("rms_norm_eps", default=family.eps),
        "rope_style": "half",
        "rotary_dim": sizes.head_dim,
        "layer_rope": (0,) * sizes.num_layers,
        "windows": (0,) * sizes.num_layers,
        "query_scale": sizes.head_dim**-0.5,
    }
    config = ModelConfig(**(shape | family.switches(fields, sizes)))
    require_consistent(config)
    return config


def ties_embeddings(document: Mapping[str, object]) -> bool:
    """Whether the head is the embedding. Raises: MalformedModelError."""
    gemma = Fields(document).text("model_type").startswith("gemma")
    return Fields(document).flag("tie_word_embeddings", default=gemma)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    num_layers: int
    head_dim: int
    max_context_tokens: int


def _llama(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    return {"rope_tables": (_scaled_table(fields, fields, sizes),)}


def _mistral(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    # A missing window means 4,096 to transformers, null means none.
    window = fields.count_or_zero("sliding_window", MAX_CONTEXT_TOKENS)
    if "sliding_window" not in fields.values:
        window = 4096
    return _llama(fields, sizes) | {"windows": (window,) * sizes.num_layers}


def _qwen2(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    return _llama(fields, sizes) | {"qkv_bias": True, "windows": _qwen_windows(fields, sizes)}


def _qwen3(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    return _llama(fields, sizes) | {"qk_norm": True, "windows": _qwen_windows(fields, sizes)}


def _qwen_windows(fields: Fields, sizes: _Sizes) -> tuple[int, ...]:
    if not fields.flag("use_sliding_window"):
        return (0,) * sizes.num_layers
    window = fields.count("sliding_window", MAX_CONTEXT_TOKENS, default=4096)
    first = fields.count_or_zero("max_window_layers", 10 * MAX_LAYERS)
    if fields.get("max_window_layers") is None:
        first = 28
    kinds = [_SLIDING if layer >= first else _FULL for layer in range(sizes.num_layers)]
    return tuple(window * (kind == _SLIDING) for kind in _layer_types(fields, sizes, kinds))


def _gemma2(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    kinds = _layer_types(fields, sizes, _every(2, sizes.num_layers))
    return _gemma(fields, sizes, kinds) | {
        "rope_tables": (_scaled_table(fields, fields, sizes),),
        "attention_softcap": _softcap(fields, "attn_logit_softcapping", 50.0),
        "final_softcap": _softcap(fields, "final_logit_softcapping", 30.0),
    }


def _gemma3(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    name = "sliding_window_pattern"
    pattern = fields.count(
        "_" + name, MAX_LAYERS, default=fields.count(name, MAX_LAYERS, default=6)
    )
    kinds = _layer_types(fields, sizes, _every(pattern, sizes.num_layers))
    return _gemma(fields, sizes, kinds) | {
        "qk_norm": True,
        "rope_tables": _gemma3_tables(fields, sizes),
        "layer_rope": tuple(int(kind == _SLIDING) for kind in kinds),
        "attention_softcap": _softcap(fields, "attn_logit_softcapping", 0.0),
        "final_softcap": _softcap(fields, "final_logit_softcapping", 0.0),
    }


def _gemma3_tables(fields: Fields, sizes: _Sizes) -> tuple[RopeTable, RopeTable]:
    """Of global layers, which may be scaled, and of local ones."""
    parameters = fields.table("rope_parameters")
    if parameters.get(_FULL) is None:
        local = fields.positive("rope_local_base_freq", default=10_000.0)
        table = _scaled_table(fields, fields, sizes, default_theta=1_000_000.0)
        return (table, rope_tables.plain(local, sizes.head_dim))
    return (
        _scaled_table(fields, parameters.table(_FULL), sizes, default_theta=1_000_000.0),
        _scaled_table(fields, parameters.table(_SLIDING), sizes),
    )


def _gemma(fields: Fields, sizes: _Sizes, kinds: list[str]) -> dict[str, Any]:
    window = fields.count("sliding_window", MAX_CONTEXT_TOKENS, default=4096)
    return {
        "windows": tuple(window * (kind == _SLIDING) for kind in kinds),
        "query_scale": fields.positive("query_pre_attn_scalar", default=256) ** -0.5,
        "embedding_scale": fields.count("hidden_size", MAX_WIDTH) ** 0.5,
        "activation": "gelu_tanh",
        "post_norms": True,
    }


def _phi3(fields: Fields, sizes: _Sizes) -> dict[str, Any]:
    """LongRoPE runs with its short factors, so within the original context only."""
    parameters = _rope_parameters(fields)
    share = fields.positive("partial_rotary_factor", default=1.0)
    rotary_dim = int(sizes.head_dim * parameters.positive("partial_rotary_factor", default=share))
    if not 2 <= rotary_dim <= sizes.head_dim:
        raise UnsupportedModelError("partial_rotary_factor rotates nothing, or more than a head")
    window = fields.count_or_zero("sliding_window", MAX_CONTEXT_TOKENS)
    switches = {"rotary_dim": rotary_dim, "windows": (window,) * sizes.num_layers}
    theta = _theta(fields, parameters, 10_000.0)
    table = rope_tables.plain(theta, rotary_dim)
    if (kind := _rope_type(parameters)) == "default":
        return switches | {"rope_tables": (table,)}
    if kind not in ("longrope", "su", "yarn"):
        raise UnsupportedModelError("the rotary scaling of a phi3 model is not longrope")
    short = parameters.numbers("short_factor", rotary_dim // 2)
    if short is None:
        raise MalformedModelError("short_factor is missing")
    original = _original_context(fields, parameters, default=4096)
    attention = rope_tables.longrope_attention_factor(sizes.max_context_tokens, original)
    table = rope_tables.divided(table, short)
    return switches | {
        "max_context_tokens": min(original, sizes.max_context_tokens),
        "rope_tables": (
            RopeTable(
                inverse_frequencies=table.inverse_frequencies,
                attention_factor=parameters.positive("attention_factor", default=attention),
            ),
        ),
    }


def _scaled_table(
    fields: Fields, parameters: Fields, sizes: _Sizes, *, default_theta: float = 10_000.0
) -> RopeTable:
    """Of ``parameters``, or of the document itself when these are ``fields``."""
    if parameters is fields:
        parameters = _rope_parameters(fields)
    if parameters.positive("partial_rotary_factor", default=1.0) != 1:
        raise UnsupportedModelError("partial_rotary_factor is not 1")
    theta = _theta(fields, parameters, default_theta)
    table = rope_tables.plain(theta, sizes.head_dim)
    kind = _rope_type(parameters)
    if kind == "default":
        return table
    factor = parameters.positive("factor")
    if kind == "linear":
        return rope_tables.divided(table, factor)
    original = _original_context(fields, parameters, default=sizes.max_context_tokens)
    if kind == "llama3":
        return rope_tables.Llama3Scaling(
            factor=factor,
            low_freq_factor=parameters.positive("low_freq_factor"),
            high_freq_factor=parameters.positive("high_freq_factor"),
            original_context=original,
        ).apply(table)
    if kind == "yarn":
        parameters.require_unset("mscale", "mscale_all_dim")
        given = parameters.positive_or_zero("attention_factor")
        return rope_tables.YarnScaling(
            factor=factor,
            original_context=original,
            beta_fast=parameters.positive("beta_fast", default=32.0),
            beta_slow=parameters.positive("beta_slow", default=1.0),
            attention_factor=given or None,
            truncate=parameters.flag("truncate", default=True),
        ).apply(table, theta)
    raise UnsupportedModelError("the rotary scaling is not one of linear, llama3, yarn")


def _rope_parameters(fields: Fields) -> Fields:
    """transformers 5 writes rope_parameters, earlier ones rope_scaling."""
    parameters = fields.table("rope_parameters")
    return parameters if parameters.values else fields.table("rope_scaling")


def _theta(fields: Fields, parameters: Fields, default: float) -> float:
    return parameters.positive("rope_theta", default=fields.positive("rope_theta", default=default))


def _rope_type(parameters: Fields) -> str:
    return parameters.text("rope_type", default=parameters.text("type", default="default"))


def _original_context(fields: Fields, parameters: Fields, *, default: int) -> int:
    name = "original_max_position_embeddings"
    outer = fields.count(name, MAX_CONTEXT_TOKENS, default=default)
    return parameters.count(name, MAX_CONTEXT_TOKENS, default=outer)


def _softcap(fields: Fields, name: str, default: float) -> float:
    """Null means none, absent means the default."""
    return fields.positive_or_zero(name) if name in fields.values else default


def _every(period: int, num_layers: int) -> list[str]:
    """Each ``period``-th layer is global."""
    return [_SLIDING if (layer + 1) % period else _FULL for layer in range(num_layers)]


def _layer_types(fields: Fields, sizes: _Sizes, default: list[str]) -> list[str]:
    given = fields.items("layer_types", sizes.num_layers)
    kinds = default if given is None else [str(kind) for kind in given]
    if not {_FULL, _SLIDING}.issuperset(kinds):
        raise UnsupportedModelError("layer_types has an unknown kind of layer")
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    architecture: str  # GGUF's name
    switches: Callable[[Fields, _Sizes], dict[str, Any]]
    activation: str = "silu"
    head_dim: int = 0  # 0: hidden size / heads
    eps: float = 1e-6


_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(architecture="llama", switches=_llama),
    "mistral": _Family(architecture="llama", switches=_mistral),
    "qwen2": _Family(architecture="qwen2", switches=_qwen2),
    "qwen3": _Family(architecture="qwen3", switches=_qwen3, head_dim=128),
    "gemma2": _Family(
        architecture="gemma2", switches=_gemma2, activation="gelu_pytorch_tanh", head_dim=256
    ),
    "gemma3_text": _Family(
        architecture="gemma3", switches=_gemma3, activation="gelu_pytorch_tanh", head_dim=256
    ),
    "phi3": _Family(architecture="phi3", switches=_phi3, eps=1e-5),
}
