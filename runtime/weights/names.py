"""What does GGUF call a tensor of a Hugging Face folder?  One table, for the models we run."""

import re
from collections.abc import Mapping

from runtime.weights.errors import TensorMismatchError
from runtime.weights.stored import StoredTensor, split_rows

_OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,3})\.([a-z_.]+)\.(weight|bias)", re.ASCII)
_INSIDE = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_INSIDE_POST_NORMS = _INSIDE | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
# Early transformers saved this table of constants with each layer.
_IGNORED = ".self_attn.rotary_emb.inv_freq"


_VISION = ("vision_tower.", "multi_modal_projector.")


def of_language_model(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Those of a model with a vision tower that compute text, by the names of a model without."""
    kept: dict[str, StoredTensor] = {}
    for hf_name, tensor in tensors.items():
        if hf_name.removeprefix("model.").startswith(_VISION):
            continue
        name = hf_name.removeprefix("language_model.")
        name = name.replace("model.language_model.", "model.", 1)
        if name in kept:
            raise TensorMismatchError(f"two tensors are both {name!r}")
        kept[name] = tensor
    return kept


def gguf_names(
    tensors: Mapping[str, StoredTensor], *, tied: bool, post_norms: bool
) -> dict[str, StoredTensor]:
    """Hugging Face tensors under GGUF's names; ``tied`` leaves out a head that is not used.

    ``post_norms`` models (Gemma) store norm weights less one; here they are whole.

    Raises: TensorMismatchError for an unknown tensor, or two that get the same name.
    """
    inside = _INSIDE_POST_NORMS if post_norms else _INSIDE
    named: dict[str, StoredTensor] = {}
    for hf_name, tensor in tensors.items():
        if hf_name.endswith(_IGNORED) or (tied and hf_name == "lm_head.weight"):
            continue
        name = _gguf_name(hf_name, inside)
        if name in named:
            raise TensorMismatchError(f"two tensors are both {name}")
        is_norm = post_norms and name.endswith("_norm.weight")
        named[name] = tensor.plus_one() if is_norm else tensor
    return named


def _gguf_name(hf_name: str, inside: Mapping[str, str]) -> str:
    if hf_name in _OUTSIDE:
        return _OUTSIDE[hf_name]
    match = _LAYER.fullmatch(hf_name)
    if match is None or match[2] not in inside:
        raise TensorMismatchError(f"unexpected tensor {hf_name!r}")
    return f"blk.{match[1]}.{inside[match[2]]}.{match[3]}"


def without_fused(
    tensors: Mapping[str, StoredTensor],
    *,
    num_layers: int,
    qkv_rows: tuple[int, int, int],
    ffn_size: int,
) -> dict[str, StoredTensor]:
    """Query, key, value and gate, up as tensors of their own where a file (Phi-3) stacks them.

    Raises: TensorMismatchError.
    """
    split = dict(tensors)
    for layer in range(num_layers):
        name = f"blk.{layer}."
        if name + "attn_qkv.weight" in split:
            names = [f"{name}attn_{part}.weight" for part in "qkv"]
            parts = list(zip(names, qkv_rows, strict=True))
            split = split_rows(split, name + "attn_qkv.weight", parts)
        up = split.get(name + "ffn_up.weight")
        if up is not None and name + "ffn_gate.weight" not in split:
            parts = [(name + "ffn_gate.weight", ffn_size), (name + "ffn_up.weight", ffn_size)]
            split = split_rows(split, name + "ffn_up.weight", parts)
    return split
