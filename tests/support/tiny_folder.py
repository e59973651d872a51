"""Which safetensors folder is small enough for every test?  Seeded, two layers, written here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VOCAB_SIZE, HIDDEN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, FFN, NUM_LAYERS = 32, 16, 2, 1, 8, 24, 2

Array = npt.NDArray[Any]
_DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A config.json; ``changes`` add to it, None takes away."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    } | changes
    return {name: value for name, value in config.items() if value is not None}


def tiny_arrays(seed: int = 0) -> dict[str, Array]:
    """Weights by Hugging Face name; every type that is read occurs (bfloat16 as uint16)."""
    rng = np.random.default_rng(seed)

    def weight(*shape: int) -> Array:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    arrays: dict[str, Array] = {
        "model.embed_tokens.weight": weight(VOCAB_SIZE, HIDDEN).astype(np.float16),
        "model.norm.weight": 1 + weight(HIDDEN),
        "lm_head.weight": weight(VOCAB_SIZE, HIDDEN),
    }
    q_width, kv_width = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    for layer in range(NUM_LAYERS):
        name = f"model.layers.{layer}."
        arrays |= {
            name + "input_layernorm.weight": 1 + weight(HIDDEN),
            name + "self_attn.q_proj.weight": bfloat16(weight(q_width, HIDDEN)),
            name + "self_attn.k_proj.weight": bfloat16(weight(kv_width, HIDDEN)),
            name + "self_attn.v_proj.weight": weight(kv_width, HIDDEN),
            name + "self_attn.o_proj.weight": weight(HIDDEN, q_width),
            name + "post_attention_layernorm.weight": 1 + weight(HIDDEN),
            name + "mlp.gate_proj.weight": weight(FFN, HIDDEN),
            name + "mlp.up_proj.weight": weight(FFN, HIDDEN),
            name + "mlp.down_proj.weight": weight(HIDDEN, FFN).astype(np.float16),
        }
    return arrays


def bfloat16(array: Array) -> Array:
    """The upper halves of float32, as uint16."""
    return np.asarray(array.astype("<f4").view("<u4") >> 16, np.uint16)


def safetensors_bytes(
    arrays: Mapping[str, Array], *, header: Mapping[str, Any] | None = None
) -> bytes:
    """A file; entries of ``header`` replace what is true, None leaves them out."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        raw = array.tobytes()
        entries[name] = {
            "dtype": _DTYPES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    entries |= header or {}
    kept = {name: entry for name, entry in entries.items() if entry is not None}
    return with_header(json.dumps(kept).encode(), data)


def with_header(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def write_tiny_folder(folder: Path, *, arrays: Mapping[str, Array] | None = None) -> Path:
    """One file of weights, and a config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(arrays or tiny_arrays()))
    return folder


def write_tiny_shards(folder: Path) -> Path:
    """Two shards and an index."""
    arrays = list(tiny_arrays().items())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    places: dict[str, str] = {}
    for number, part in enumerate((arrays[:5], arrays[5:]), start=1):
        shard = f"model-{number:05}-of-00002.safetensors"
        (folder / shard).write_bytes(safetensors_bytes(dict(part)))
        places |= {name: shard for name, _ in part}
    write_index(folder, places)
    return folder


def write_index(folder: Path, places: Mapping[str, Any]) -> None:
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(text)
