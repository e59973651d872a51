"""Which tiny models stand for the published ones?  Seeded, random, made by ``transformers``.

Each has what its family's files have and others lack; sizes are the smallest that show it.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

VOCAB_SIZE = 512
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 64, 4, 2, 16, 96
CONTEXT = 256
WINDOW = 12  # shorter than the prompts of the tests
_LAYERS = 2

_COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0 + 0.1 * j for j in range(HEAD_DIM // 2)],
    "long_factor": [2.0 + 0.5 * j for j in range(HEAD_DIM // 2)],
    "original_max_position_embeddings": 128,
}
_PARTIAL_LONGROPE = _LONGROPE | {
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.1 * j for j in range(6)],
    "long_factor": [2.0 + 0.5 * j for j in range(6)],
}
_GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}

# name -> (class of transformers, what differs from its defaults)
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("LlamaForCausalLM", {}),
    "llama3": ("LlamaForCausalLM", {"rope_parameters": _LLAMA3_ROPE}),
    "smollm": (
        "LlamaForCausalLM",
        {
            "tie_word_embeddings": True,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "hidden_size": 96,
        },
    ),
    "smollm3": ("SmolLM3ForCausalLM", {"num_hidden_layers": 4}),
    "mistral": ("MistralForCausalLM", {"sliding_window": WINDOW}),
    "mistral-full": ("MistralForCausalLM", {"sliding_window": None, "head_dim": 32}),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen2-yarn": ("Qwen2ForCausalLM", {"rope_parameters": _YARN}),
    "qwen2-window": (
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 32}),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            "head_dim": 32,
            "query_pre_attn_scalar": 24,
            "sliding_window": WINDOW,
            "num_hidden_layers": 4,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        {
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": WINDOW,
            "num_hidden_layers": 6,
            "rope_parameters": _GEMMA3_ROPE,
        },
    ),
    "phi3": ("Phi3ForCausalLM", {"sliding_window": WINDOW}),
    "phi3-longrope": (
        "Phi3ForCausalLM",
        {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 128},
    ),
    "phi4-mini": (
        "Phi3ForCausalLM",
        {
            "rope_parameters": _PARTIAL_LONGROPE,
            "original_max_position_embeddings": 128,
            "tie_word_embeddings": True,
        },
    ),
}


def config_of(name: str, **more: Any) -> Any:
    """The model's config; ``more`` are settings that differ from ``MODELS``."""
    transformers = pytest.importorskip("transformers")
    kind, changes = MODELS[name]
    return getattr(transformers, kind).config_class(**(_COMMON | changes | more))


def make_model(name: str, *, seed: int = 0, **more: Any) -> Any:
    """The model in float32, ready to be asked; skips without ``transformers``."""
    transformers = pytest.importorskip("transformers")
    import torch

    model_class = getattr(transformers, MODELS[name][0])
    config = config_of(name, **more)
    config._attn_implementation = "eager"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config).eval()
        norm_base = 0.0 if "gemma" in name else 1.0
        tied = config.tie_word_embeddings
        for parameter_name, parameter in model.named_parameters():
            _randomize(parameter_name, parameter, norm_base=norm_base, tied=tied)
    return model


def _randomize(name: str, parameter: Any, *, norm_base: float, tied: bool) -> None:
    """Norms and biases start as constants, which would hide that they are not used."""
    import torch

    with torch.no_grad():
        if "norm" in name:
            parameter.normal_(norm_base, 0.2)
        elif name.endswith("bias"):
            parameter.normal_(0, 0.5)
        elif "embed" in name:
            parameter.normal_(0, 0.2 if tied else 1.0)  # logits of the order of 1
        else:
            parameter.normal_(0, 1.5 * parameter.shape[-1] ** -0.5)


def save_model(model: Any, folder: Path, *, dtype: str = "float32", max_shard: str = "5GB") -> Path:
    """A safetensors folder as ``transformers`` writes it; ``model`` is rounded to ``dtype``."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    rounded = copy.deepcopy(model).to(getattr(torch, dtype))
    rounded.save_pretrained(folder, max_shard_size=max_shard)
    with torch.no_grad():  # not of the model itself: its rotary tables are no weights
        for mine, saved in zip(model.parameters(), rounded.parameters(), strict=True):
            mine.copy_(saved.float())
    return folder


def logits_of(model: Any, token_ids: list[int]) -> npt.NDArray[np.float32]:
    """(T, V) in float32."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([token_ids]), use_cache=False).logits[0]
    return np.asarray(logits.numpy(), np.float32)


def tokens(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, VOCAB_SIZE, count)]
