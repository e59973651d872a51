"""Parsers of model files: everything from the first byte to the last dequantized tensor."""

import json
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from runtime.checkpoint import open_checkpoint
from runtime.devices.base import TorchDevice
from runtime.models.hf_config import parse_config
from runtime.models.loader import load_decoder
from runtime.weights.json_text import parse_object
from tests.fuzz import damage
from tests.fuzz.driver import Target
from tests.support.tiny_folder import (
    safetensors_bytes,
    tiny_arrays,
    tiny_config,
    with_header,
    write_tiny_folder,
)
from tests.support.tiny_model import Tensor, gguf_bytes, tiny_metadata, tiny_tensors

_LENGTH_BYTES = 8


class _NoDevice(TorchDevice):
    """Arrays stay where they are: this is about reading them."""

    def upload(self, array: npt.NDArray[Any]) -> Any:
        return array

    weights = upload


def _load(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        config = checkpoint.config_for()
        load_decoder(config, checkpoint.source(config, lambda ratio: None), _NoDevice("cpu"))


def _in_files(
    load: Callable[[Path, bytes], None], name: str, seeds: Sequence[bytes], mutate: damage.Mutator
) -> Target:
    """``load`` gets a folder of the target's own, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="starshade-fuzz-"))

    def parse(data: bytes) -> None:
        load(folder, data)

    weakref.finalize(parse, shutil.rmtree, folder, ignore_errors=True)
    return Target(name=name, parse=parse, seeds=seeds, mutate=mutate)


def gguf() -> Target:
    def load(folder: Path, data: bytes) -> None:
        path = folder / "model.gguf"
        path.write_bytes(data)
        _load(path)

    seeds = [gguf_bytes(_small_metadata(), _small_tensors()), _gemma3_bytes()]
    return _in_files(load, "gguf", seeds, _head_first(4096))


def safetensors() -> Target:
    def load(folder: Path, data: bytes) -> None:
        if not (folder / "config.json").exists():
            write_tiny_folder(folder)
        (folder / "model.safetensors").write_bytes(data)
        _load(folder)

    return _in_files(load, "safetensors", [safetensors_bytes(tiny_arrays())], _header_first)


def model_config() -> Target:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    factors = [1.0] * 4
    configs = [
        tiny_config(rope_scaling=rope | {"original_max_position_embeddings": 64}),
        tiny_config(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}),
        tiny_config(
            model_type="phi3",
            rope_scaling={"type": "longrope", "short_factor": factors, "long_factor": factors},
            original_max_position_embeddings=64,
        ),
        tiny_config(model_type="gemma3_text", head_dim=8, query_pre_attn_scalar=8, sliding_window=9)
        | {"layer_types": ["sliding_attention", "full_attention"]},
        tiny_config(model_type="qwen2", use_sliding_window=True, max_window_layers=1),
        tiny_config(model_type="smollm3", no_rope_layers=[1, 0], no_rope_layer_interval=2),
        {"model_type": "gemma3", "text_config": tiny_config(model_type=None)},
    ]
    return Target(
        name="model-config",
        parse=lambda data: parse_config(parse_object(data, what="config.json")),
        seeds=[json.dumps(config).encode() for config in configs],
        mutate=damage.json_text,
    )


def _small_metadata() -> dict[str, Any]:
    return tiny_metadata() | {"tokenizer.ggml.merges": ["a b"], "llama.block_count": 1}


def _small_tensors() -> dict[str, Tensor]:
    return {name: value for name, value in tiny_tensors().items() if "blk.1." not in name}


def _gemma3_bytes() -> bytes:
    """Another architecture, with most keys that are read."""
    metadata: dict[str, Any] = {
        name.replace("llama.", "gemma3."): value for name, value in _small_metadata().items()
    } | {
        "general.architecture": "gemma3",
        "gemma3.attention.sliding_window": 16,
        "gemma3.attention.sliding_window_pattern": 6,
        "gemma3.rope.freq_base_swa": 10000.0,
        "gemma3.rope.scaling.type": "yarn",
        "gemma3.rope.scaling.factor": 8.0,
        "gemma3.attention.key_length": 16,
    }
    tensors = _small_tensors()
    norm = tensors["output_norm.weight"]
    for part in ("post_attention_norm", "post_ffw_norm"):
        tensors[f"blk.0.{part}.weight"] = norm
    for part in ("attn_q_norm", "attn_k_norm"):
        tensors[f"blk.0.{part}.weight"] = (norm[0][:16], norm[1])
    return gguf_bytes(metadata, tensors)


def _head_first(num_bytes: int) -> damage.Mutator:
    """Most damage goes where lengths, types and names are, which are few of the bytes."""

    def mutate(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
        if rng.random() < 0.2:
            return damage.raw(data, seeds, rng)
        at = rng.choice((64, 1024, num_bytes, data.index(b"token_embd") + 1024))
        return damage.raw(data[:at], [seed[:at] for seed in seeds], rng) + data[at:]

    return mutate


def _header_first(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """The header stays JSON of the length that is said, most of the time."""
    if rng.random() < 0.2:
        return damage.raw(data, seeds, rng)
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    return with_header(damage.json_text(data[_LENGTH_BYTES:end], seeds, rng), data[end:])
