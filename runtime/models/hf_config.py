"""What shape is the model of a Hugging Face folder?  Parsed once from its config.json.

Names and defaults are those of ``transformers`` [configuration_<model_type>.py]: published files
leave out what equals a default.
"""

from collections.abc import Mapping
from typing import Any

from runtime.models.config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    ModelConfig,
    require_consistent,
)
from runtime.models.fields import Fields
from runtime.models.hf_families import FAMILIES
from runtime.models.hf_rope import Sizes
from runtime.weights.errors import UnsupportedModelError

_WITH_VISION = {"gemma3": "gemma3_text"}  # model type -> that of its text_config
_REFUSED = ("quantization_config", "attention_bias", "mlp_bias", "use_bidirectional_attention")


def parse_config(document: Mapping[str, object]) -> ModelConfig:
    """The model that config.json describes.

    Raises: MalformedModelError, ModelLimitError, UnsupportedModelError.
    """
    fields = _text_fields(document)
    family = FAMILIES.get(model_type := fields.text("model_type"))
    if family is None:
        known = sorted((*FAMILIES, *_WITH_VISION))
        raise UnsupportedModelError(f"the model type is not one of {known}")
    fields = Fields(family.defaults | dict(fields.values))
    fields.require_unset(*_REFUSED)
    key = "hidden_activation" if model_type.startswith("gemma") else "hidden_act"
    if fields.text(key, default=family.activation) != family.activation:
        raise UnsupportedModelError(f"the activation is not {family.activation}")
    num_heads = fields.count("num_attention_heads", MAX_HEADS)
    hidden_size = fields.count("hidden_size", MAX_WIDTH)
    head_dim = family.head_dim or max(1, hidden_size // num_heads)
    sizes = Sizes(
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
    family = FAMILIES.get(_text_fields(document).text("model_type"))
    default = family is not None and family.ties_embeddings
    return Fields(document).flag("tie_word_embeddings", default=default)


def has_vision(document: Mapping[str, object]) -> bool:
    """Whether a vision tower is beside the language model, which alone is run."""
    return document.get("model_type") in _WITH_VISION


def _text_fields(document: Mapping[str, object]) -> Fields:
    """Of the language model, which may be one of two in the document."""
    fields = Fields(document)
    inner = _WITH_VISION.get(fields.text("model_type"))
    if inner is None:
        return fields
    fields.require_unset(*_REFUSED)
    text = fields.table("text_config").values
    return Fields({"model_type": inner} | dict(text))
