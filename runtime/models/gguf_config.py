"""What shape is the model of a GGUF file?  Parsed once from its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np

from runtime.models.config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    ModelConfig,
    RopeTable,
    require_consistent,
)
from runtime.weights.errors import MalformedModelError, ModelLimitError, UnsupportedModelError
from runtime.weights.gguf import MetadataValue


def parse_config(metadata: Mapping[str, MetadataValue], *, vocab_size: int) -> ModelConfig:
    """The model that ``metadata`` states for its ``general.architecture``.

    Raises: MalformedModelError, ModelLimitError; UnsupportedModelError for what would change the
    computation and is not implemented (RoPE scaling, partial rotation, sliding windows, experts).
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise MalformedModelError("general.architecture is missing")
    fields = _Fields(metadata, architecture)
    num_heads = fields.count("attention.head_count", MAX_HEADS)
    hidden_size = fields.count("embedding_length", MAX_WIDTH)
    num_layers = fields.count("block_count", MAX_LAYERS)
    head_dim = fields.count(
        "attention.key_length", MAX_HEAD_DIM, default=max(1, hidden_size // num_heads)
    )
    theta = fields.positive("rope.freq_base", default=10000.0)  # llama.cpp's default
    config = ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.count("attention.head_count_kv", MAX_HEADS, default=num_heads),
        head_dim=head_dim,
        hidden_size=hidden_size,
        ffn_size=fields.count("feed_forward_length", MAX_WIDTH),
        max_context_tokens=fields.count("context_length", MAX_CONTEXT_TOKENS),
        eps=fields.positive("attention.layer_norm_rms_epsilon"),
        rope_style="interleaved",
        rotary_dim=head_dim,
        rope_tables=(
            RopeTable(
                inverse_frequencies=theta
                ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
            ),
        ),
        layer_rope=(0,) * num_layers,
        windows=(0,) * num_layers,
        query_scale=head_dim**-0.5,
    )
    require_consistent(config)
    _require_supported(config, fields)
    return config


def _require_supported(config: ModelConfig, fields: "_Fields") -> None:
    same = {
        "vocab_size": config.vocab_size,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
    }
    for name, want in same.items():
        if (got := fields.get(name, want)) != want:
            raise UnsupportedModelError(f"{config.architecture}.{name} is {got}, want {want}")
    absent = ("rope.scaling.type", "rope.scaling.factor", "attention.sliding_window")
    for name in (*absent, "expert_count"):
        if fields.get(name, None) not in (None, "none", 0, 1.0):
            raise UnsupportedModelError(f"{config.architecture}.{name} is set")


@dataclass(frozen=True, slots=True)
class _Fields:
    metadata: Mapping[str, MetadataValue]
    architecture: str

    def get(self, name: str, default: MetadataValue | None) -> MetadataValue | None:
        return self.metadata.get(f"{self.architecture}.{name}", default)

    def count(self, name: str, limit: int, *, default: int | None = None) -> int:
        value = self.get(name, default)
        if type(value) is not int or value < 1:
            raise MalformedModelError(f"{self.architecture}.{name} is no positive count")
        if value > limit:
            raise ModelLimitError(f"{self.architecture}.{name} is {value}, at most {limit}")
        return value

    def positive(self, name: str, *, default: float | None = None) -> float:
        value = self.get(name, default)
        if not isinstance(value, float) or not isfinite(value) or value <= 0:
            raise MalformedModelError(f"{self.architecture}.{name} is no positive number")
        return value
