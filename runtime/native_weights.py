"""How do a model file's tensors become the native model's packed weights?  Without torch.

Matrices are repacked once from the mapped file, each in its own type; nothing is dequantized but
norms and biases.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from runtime import _native
from runtime.errors import InvalidConfig
from runtime.models.config import ModelConfig
from runtime.plan import Float32Array
from runtime.weights.errors import TensorMismatchError, UnsupportedModelError
from runtime.weights.source import TensorSource

PRECISIONS = ("int8", "f32")
_COPIED = (
    "vocab_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_size",
    "ffn_size",
    "rotary_dim",
    "max_context_tokens",
    "eps",
    "query_scale",
    "attention_softcap",
    "final_softcap",
    "embedding_scale",
    "qkv_bias",
    "qk_norm",
    "post_norms",
)
_MATRICES = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "attention_output": ("attn_output",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}
# Those whose rounding costs least for the time that it saves: queries, keys and values, rounded so,
# cost half as much as all of these, for a sixth of the products.
_ROTATED = ("attention_output", "gate_up", "down")
_NORMS = {"attention_norm": "attn_norm", "ffn_norm": "ffn_norm"}
_POST_NORMS = {"post_attention_norm": "post_attention_norm", "post_ffn_norm": "post_ffw_norm"}
_HEAD_NORMS = {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}


def pack_weights(
    cpu: _native.Cpu, config: ModelConfig, source: TensorSource, *, precision: str
) -> _native.ModelWeights:
    """Take every tensor of ``source``.

    ``precision`` int8 multiplies packed integers by activations rounded to 8 bits per group of 32;
    f32 keeps activations as they are.

    Raises: TensorMismatchError, MalformedModelError, UnsupportedModelError, InvalidConfig.
    """
    if precision not in PRECISIONS:
        raise InvalidConfig(f"precision {precision!r} is not one of {PRECISIONS}")
    packer = _Packer(cpu, config, source, for_many_rows=precision == "int8")
    embedding = packer.matrix("token_embd.weight", config.vocab_size, config.hidden_size)
    head = embedding
    if source.has("output.weight"):
        head = packer.matrix("output.weight", config.vocab_size, config.hidden_size)
    if precision == "int8":
        head.widen(cpu)
    try:
        weights = _native.ModelWeights(
            native_shape(config),
            embedding,
            head,
            source.take("output_norm.weight", (config.hidden_size,)),
            float_only=precision == "f32",
        )
        for index in range(config.num_layers):
            weights.add_layer(*packer.layer(index))
    except ValueError as err:  # sizes that the compiled kernels do not have
        raise UnsupportedModelError(f"the native model cannot run this one: {err}") from err
    source.finish()
    return weights


def native_shape(config: ModelConfig) -> _native.ModelShape:
    """The compiled side's copy of ``config``."""
    shape = _native.ModelShape()
    for name in _COPIED:
        setattr(shape, name, getattr(config, name))
    shape.windows = list(config.windows)
    shape.layer_rope = list(config.layer_rope)
    shape.rope_is_interleaved = config.rope_style == "interleaved"
    shape.activation_is_gelu = config.activation == "gelu_tanh"
    for table in config.rope_tables:
        shape.add_rope(table.inverse_frequencies.tolist(), table.attention_factor)
    return shape


class _Packer:
    def __init__(
        self, cpu: _native.Cpu, config: ModelConfig, source: TensorSource, *, for_many_rows: bool
    ) -> None:
        self._cpu, self._config, self._source = cpu, config, source
        self._for_many_rows = for_many_rows
        q_width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        hidden_size, ffn_size = config.hidden_size, config.ffn_size
        self._shapes = {
            "attn_q": (q_width, hidden_size),
            "attn_k": (kv_width, hidden_size),
            "attn_v": (kv_width, hidden_size),
            "attn_output": (hidden_size, q_width),
            "ffn_gate": (ffn_size, hidden_size),
            "ffn_up": (ffn_size, hidden_size),
            "ffn_down": (hidden_size, ffn_size),
        }

    def matrix(self, name: str, num_rows: int, num_cols: int) -> _native.Matrix:
        raw = self._source.raw(name, (num_rows, num_cols))
        try:
            return _native.Matrix.pack(self._cpu, raw.type.ggml_id, raw.data, num_rows, num_cols)
        except ValueError as err:
            raise TensorMismatchError(f"{name} cannot be packed: {err}") from err

    def layer(
        self, index: int
    ) -> tuple[Mapping[str, list[_native.Matrix]], Mapping[str, Float32Array]]:
        config, prefix = self._config, f"blk.{index}."
        matrices = {
            name: [self.matrix(f"{prefix}{part}.weight", *self._shapes[part]) for part in parts]
            for name, parts in _MATRICES.items()
        }
        if self._for_many_rows:
            is_last = index + 1 == config.num_layers  # nothing makes up for what that one rounds
            for name, matrix in ((name, one) for name, all_ in matrices.items() for one in all_):
                add_form = matrix.rotate if name in _ROTATED and not is_last else matrix.widen
                add_form(self._cpu)
        widths = dict.fromkeys(_NORMS, config.hidden_size)
        names = dict(_NORMS)
        if config.post_norms:
            names |= _POST_NORMS
            widths |= dict.fromkeys(_POST_NORMS, config.hidden_size)
        if config.qk_norm:
            names |= _HEAD_NORMS
            widths |= dict.fromkeys(_HEAD_NORMS, config.head_dim)
        vectors = {
            name: self._source.take(f"{prefix}{part}.weight", (widths[name],))
            for name, part in names.items()
        }
        if config.qkv_bias:
            vectors["qkv_bias"] = self._stacked(
                (f"{prefix}{part}.bias", self._shapes[part][0]) for part in _MATRICES["qkv"]
            )
        return matrices, vectors

    def _stacked(self, parts: Iterable[tuple[str, int]]) -> Float32Array:
        return np.concatenate([self._source.take(name, (width,)) for name, width in parts])
