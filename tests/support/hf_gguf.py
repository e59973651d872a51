"""How does a ``transformers`` model become a GGUF file?  By the ``gguf`` package, as converters do.

Metadata and tensors are those of llama.cpp's conversion: llama's query and key rows permuted,
Gemma's norms plus one, Llama 3's and LongRoPE's factors as tensors.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[np.float32]
Kind = Callable[[str], str]  # tensor name -> type name
Packed = tuple[str, npt.NDArray[np.uint8]]  # type name, (rows, bytes of a row)
_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}


def f32(name: str) -> str:
    """Every tensor as it is."""
    return "F32"


def write_gguf(
    model: Any, path: Path, *, kind: Kind = f32, packed: Mapping[str, Packed] | None = None
) -> Path:
    """Write ``model``; matrices get the type that ``kind`` says, vectors stay F32.

    ``packed`` are matrices by their name in the model that are written as they are.
    """
    gguf = pytest.importorskip("gguf")
    config = model.config.to_dict()
    architecture = _ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, architecture)
    _write_metadata(writer, config, architecture)
    arch = getattr(gguf.MODEL_ARCH, architecture.upper())
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    state = model.state_dict()
    if config.get("tie_word_embeddings"):
        state.pop("lm_head.weight", None)
    for hf_name, tensor in state.items():
        name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        if hf_name in (packed or {}):
            own_kind, raw = (packed or {})[hf_name]
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[own_kind])
            continue
        array = _as_converted(hf_name, tensor.float().numpy(), config)
        ggml_type = gguf.GGMLQuantizationType[kind(name) if array.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quantize(array, ggml_type), raw_dtype=ggml_type)
    for name, array in _factors(config).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_metadata(writer: Any, config: dict[str, Any], architecture: str) -> None:
    rope = config["rope_parameters"]
    rope, local = rope.get("full_attention", rope), rope.get("sliding_attention")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if head_dim := config.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    if local:
        writer.add_rope_freq_base_swa(local["rope_theta"])
    if share := rope.get("partial_rotary_factor", 1) * (architecture == "phi3"):
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(int(share * head_dim))
    if window := config.get("sliding_window"):
        writer.add_sliding_window(window)
    if cap := config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(cap)
    if cap := config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(cap)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_string(f"{architecture}.rope.scaling.type", rope["rope_type"])
        writer.add_rope_scaling_factor(rope["factor"])
    if original := rope.get("original_max_position_embeddings"):
        writer.add_rope_scaling_orig_ctx_len(original)


def _as_converted(name: str, array: Array, config: dict[str, Any]) -> Array:
    if "gemma" in config["model_type"] and name.endswith("norm.weight"):
        return array + 1
    if config["model_type"] in ("llama", "mistral", "smollm3"):
        if "q_proj" in name:
            return _permuted(array, config["num_attention_heads"])
        if "k_proj" in name:
            return _permuted(array, config["num_key_value_heads"])
    return array


def _permuted(array: Array, num_heads: int) -> Array:
    """Rows j and j + D / 2 of a head become 2j and 2j + 1."""
    pairs = array.reshape(num_heads, 2, -1, array.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)


def _factors(config: dict[str, Any]) -> dict[str, Array]:
    rope = config["rope_parameters"]
    kind = rope.get("rope_type")
    if kind == "longrope":
        return {
            f"rope_factors_{length}.weight": np.array(rope[f"{length}_factor"], np.float32)
            for length in ("short", "long")
        }
    if kind != "llama3":
        return {}
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    wavelengths = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] / wavelengths
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)}
