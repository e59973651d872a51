"""What shape is the model?  Parsed once from GGUF metadata, bounded, consistent or refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from runtime.weights.errors import MalformedModelError, ModelLimitError, UnsupportedModelError
from runtime.weights.gguf import MetadataValue

MAX_LAYERS = 512  # the deepest published models have fewer than 130
MAX_WIDTH = 1 << 17  # hidden and feed-forward sizes
MAX_HEADS = 1024
MAX_HEAD_DIM = 1024
MAX_VOCABULARY = 1 << 20
MAX_CONTEXT_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of one decoder; every query head group shares one KV head."""

    architecture: str
    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    ffn_size: int
    max_context_tokens: int
    rope_theta: float
    eps: float


def parse_config(metadata: Mapping[str, MetadataValue], *, vocab_size: int) -> ModelConfig:
    """The sizes that ``metadata`` states for its ``general.architecture``.

    Raises: MalformedModelError, ModelLimitError; UnsupportedModelError for what would change the
    computation and is not implemented (RoPE scaling, partial rotation, sliding windows, experts).
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise MalformedModelError("general.architecture is missing")
    fields = _Fields(metadata, architecture)
    num_heads = fields.count("attention.head_count", MAX_HEADS)
    hidden_size = fields.count("embedding_length", MAX_WIDTH)
    config = ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        num_layers=fields.count("block_count", MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=fields.count("attention.head_count_kv", MAX_HEADS, default=num_heads),
        head_dim=fields.count(
            "attention.key_length", MAX_HEAD_DIM, default=max(1, hidden_size // num_heads)
        ),
        hidden_size=hidden_size,
        ffn_size=fields.count("feed_forward_length", MAX_WIDTH),
        max_context_tokens=fields.count("context_length", MAX_CONTEXT_TOKENS),
        rope_theta=fields.positive("rope.freq_base", default=10000.0),  # llama.cpp's default
        eps=fields.positive("attention.layer_norm_rms_epsilon"),
    )
    _require_consistent(config, fields)
    return config


def _require_consistent(config: ModelConfig, fields: "_Fields") -> None:
    if not 1 <= config.vocab_size <= MAX_VOCABULARY:
        raise ModelLimitError(f"the vocabulary has {config.vocab_size} tokens")
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise MalformedModelError("heads, KV heads and head size do not fit each other")
    head_dim = config.head_dim
    same = {
        "vocab_size": config.vocab_size,
        "attention.value_length": head_dim,
        "rope.dimension_count": head_dim,
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
