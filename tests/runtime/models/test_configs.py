"""Do config.json files of either age, and GGUF metadata, say the same of a model?"""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from runtime.models.config import ModelConfig
from runtime.models.hf_config import parse_config
from tests.support.hf_models import MODELS, config_of


def documents(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """As transformers 5 writes it, and as files were published before."""
    new = config_of(name).to_dict()
    old = {key: value for key, value in new.items() if key not in ("layer_types", "dtype")}
    rope = old.pop("rope_parameters")
    rope, local = rope.get("full_attention", rope), rope.get("sliding_attention")
    old["rope_theta"] = rope["rope_theta"]
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    if (share := scaling.pop("partial_rotary_factor", None)) is not None:
        old["partial_rotary_factor"] = share
    kind = scaling.pop("rope_type")
    old["rope_scaling"] = None if kind == "default" else scaling | {"type": kind}
    if local:
        old |= {"rope_local_base_freq": local["rope_theta"], "sliding_window_pattern": 6}
    return new, old


def assert_same(got: ModelConfig, want: ModelConfig) -> None:
    for field in fields(ModelConfig):
        mine, other = getattr(got, field.name), getattr(want, field.name)
        if field.name != "rope_tables":
            assert mine == other, field.name
            continue
        assert len(mine) == len(other)
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a.inverse_frequencies, b.inverse_frequencies)
            assert a.attention_factor == b.attention_factor


@pytest.mark.parametrize("name", MODELS)
def test_old_and_new_files_say_the_same(name: str) -> None:
    new, old = documents(name)
    assert_same(parse_config(old), parse_config(new))


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("llama2", (0, 0)),
        ("mistral", (12, 12)),
        ("mistral-full", (0, 0)),
        ("qwen2", (0, 0)),
        ("qwen2-window", (0, 12)),
        ("gemma2", (12, 0, 12, 0)),
        ("gemma3", (12, 12, 12, 12, 12, 0)),
        ("phi3", (12, 12)),
    ],
)
def test_windows_are_on_the_layers_that_have_them(name: str, windows: tuple[int, ...]) -> None:
    for document in documents(name):
        assert parse_config(document).windows == windows


def test_what_published_files_leave_out() -> None:
    """transformers 4 wrote what differs from its defaults."""
    _, mistral = documents("mistral")
    del mistral["sliding_window"]
    assert parse_config(mistral).windows == (4096, 4096)
    _, gemma = documents("gemma2")
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"):
        del gemma[key]
    config = parse_config(gemma)
    assert (config.attention_softcap, config.final_softcap) == (50.0, 30.0)
    assert config.query_scale == 256**-0.5
    _, qwen3 = documents("qwen3")
    del qwen3["head_dim"]
    assert parse_config(qwen3).head_dim == 128


def test_long_contexts_end_where_the_short_factors_do() -> None:
    new, _ = documents("phi3-longrope")
    assert new["max_position_embeddings"] == 256
    assert parse_config(new).max_context_tokens == 128
