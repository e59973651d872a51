"""Is a folder or file opened as what it is, and refused when it is something else?"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.checkpoint import open_checkpoint
from runtime.errors import ModelFileError
from tests.support.decoders import load_reference
from tests.support.tiny_folder import (
    VOCAB_SIZE,
    bfloat16,
    safetensors_bytes,
    tiny_arrays,
    tiny_config,
    write_index,
    write_tiny_folder,
    write_tiny_shards,
)
from tests.support.tiny_model import gguf_bytes, tiny_metadata, tiny_tensors, write_tiny_gguf

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def code_of(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        load_reference(path)
    return caught.value.code


def sha256_of(path: Path) -> str:
    with open_checkpoint(path) as checkpoint:
        return checkpoint.sha256(lambda ratio: None)


def test_shards_and_one_file_are_the_same_model(tmp_path: Path) -> None:
    whole = load_reference(write_tiny_folder(tmp_path / "whole")).whole(TOKENS)
    sharded = load_reference(write_tiny_shards(tmp_path / "shards")).whole(TOKENS)
    assert whole.shape == (len(TOKENS), VOCAB_SIZE)
    np.testing.assert_array_equal(whole, sharded)


def test_padded_vocabularies_are_cut(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path)
    with open_checkpoint(folder) as checkpoint:
        config = checkpoint.config_for(VOCAB_SIZE - 5)
        assert config.vocab_size == VOCAB_SIZE - 5
        source = checkpoint.source(config, lambda ratio: None)
        shape = (VOCAB_SIZE - 5, config.hidden_size)
        head = source.take("output.weight", shape)
        np.testing.assert_array_equal(head, tiny_arrays()["lm_head.weight"][:-5])
        assert source.take("token_embd.weight", shape).shape == shape
        with pytest.raises(ModelFileError, match="33 tokens and 32 embeddings"):
            checkpoint.config_for(VOCAB_SIZE + 1)


def test_packed_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    with open_checkpoint(write_tiny_folder(tmp_path)) as checkpoint:
        config = checkpoint.config_for()
        source = checkpoint.source(config, lambda ratio: None)
        q_width = config.num_heads * config.head_dim
        raw = source.raw("blk.0.attn_q.weight", (q_width, config.hidden_size))
        assert raw.type.name == "BF16"
        assert not raw.data.flags.owndata
        assert not raw.data.flags.writeable
        want = tiny_arrays()["model.layers.0.self_attn.q_proj.weight"]
        np.testing.assert_array_equal(raw.data.view(np.uint16).reshape(want.shape), want)
        del raw


def test_the_digest_of_a_folder_is_that_of_its_sha256sum_lines(tmp_path: Path) -> None:
    folder = write_tiny_shards(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not read, so not counted")
    names = sorted(path.name for path in folder.iterdir() if path.name != "README.md")
    lines = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names]
    want = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert sha256_of(folder) == want
    (folder / "README.md").write_text("something else")
    assert sha256_of(folder) == want


def test_the_documented_command_gives_that_digest(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    command = text.partition("cd FOLDER\n")[2].partition("```")[0]
    folder = write_tiny_shards(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "README.md", "merges.txt"):
        (folder / name).write_text(name)
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, check=True)  # noqa: S602
    assert done.stdout.decode().split()[0] == sha256_of(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_every_file_that_is_read_counts(tmp_path: Path, name: str) -> None:
    folder = write_tiny_folder(tmp_path)
    for text in ("tokenizer.json", "chat_template.jinja"):
        (folder / text).write_text("{}")
    before = sha256_of(folder)
    (folder / name).write_text((folder / name).read_text() + " ")
    assert sha256_of(folder) != before


def test_the_digest_of_a_file_is_its_own(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_opening_needs_no_torch(tmp_path: Path) -> None:
    """The native path starts without it."""
    folder, file = write_tiny_folder(tmp_path / "hf"), write_tiny_gguf(tmp_path / "tiny.gguf")
    program = (
        "import sys; from pathlib import Path; from runtime.checkpoint import open_checkpoint\n"
        "for path in sys.argv[1:]:\n"
        "    with open_checkpoint(Path(path)) as checkpoint:\n"
        "        checkpoint.source(checkpoint.config_for(), print).has('output_norm.weight')\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, folder, file], check=True, timeout=60)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model_type": "mamba"}, "model_file_unsupported"),
        ({"model_type": None}, "model_file_malformed"),
        ({"model_type": 5}, "model_file_malformed"),
        ({"quantization_config": {"quant_method": "awq"}}, "model_file_unsupported"),
        ({"attention_bias": True}, "model_file_unsupported"),
        ({"hidden_act": "relu"}, "model_file_unsupported"),
        ({"num_hidden_layers": 3}, "model_tensor_mismatch"),
        ({"num_hidden_layers": 1}, "model_tensor_mismatch"),
        ({"num_hidden_layers": 10**6}, "model_file_limit"),
        ({"num_hidden_layers": -1}, "model_file_malformed"),
        ({"num_hidden_layers": 2.0}, "model_file_malformed"),
        ({"num_attention_heads": 0}, "model_file_malformed"),
        ({"num_attention_heads": True}, "model_file_malformed"),
        ({"num_key_value_heads": 3}, "model_file_malformed"),
        ({"num_attention_heads": 1024, "head_dim": 1024}, "model_file_limit"),
        ({"hidden_size": 10**30}, "model_file_limit"),
        ({"hidden_size": 32}, "model_tensor_mismatch"),
        ({"vocab_size": 1 << 40}, "model_file_limit"),
        ({"vocab_size": 33}, "model_tensor_mismatch"),
        ({"rms_norm_eps": 10**400}, "model_file_malformed"),
        ({"rms_norm_eps": "1e-5"}, "model_file_malformed"),
        ({"rope_theta": 0.5}, "model_file_malformed"),
        ({"rope_scaling": []}, "model_file_malformed"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "model_file_unsupported"),
        ({"rope_scaling": {"type": "linear"}}, "model_file_malformed"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "model_file_malformed"),
        ({"tie_word_embeddings": "yes"}, "model_file_malformed"),
        ({"tie_word_embeddings": None, "model_type": "qwen2"}, "model_tensor_mismatch"),
        ({"model_type": "phi3", "rope_scaling": {"type": "longrope"}}, "model_file_malformed"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "model_file_malformed"),
    ],
)
def test_configs_that_we_would_compute_wrongly_are_refused(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    folder = write_tiny_folder(tmp_path)
    (folder / "config.json").write_text(json.dumps(tiny_config(**changes)))
    assert code_of(folder) == code


@pytest.mark.parametrize(
    ("places", "code"),
    [
        ({"model.norm.weight": "../model.safetensors"}, "model_file_malformed"),
        ({"model.norm.weight": "/etc/model.safetensors"}, "model_file_malformed"),
        ({"model.norm.weight": ".safetensors"}, "model_file_malformed"),
        ({"model.norm.weight": "model.bin"}, "model_file_malformed"),
        ({"model.norm.weight": 7}, "model_file_malformed"),
        ({"model.norm.weight": "absent.safetensors"}, "not_safetensors"),
        ({"model.norm.weight": "model.safetensors"}, "model_file_malformed"),
        ({f"t{i}": f"m{i}.safetensors" for i in range(2000)}, "model_file_limit"),
        (None, "model_file_malformed"),
    ],
)
def test_an_index_stays_in_its_folder_and_places_every_tensor(
    tmp_path: Path, places: Any, code: str
) -> None:
    folder = write_tiny_folder(tmp_path)
    write_index(folder, places)
    assert code_of(folder) == code


def test_an_index_cannot_name_what_no_shard_has(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path)
    places = dict.fromkeys([*tiny_arrays(), "more"], "model.safetensors")
    write_index(folder, places)
    assert code_of(folder) == "model_file_malformed"


def test_unknown_missing_and_misshapen_tensors_are_refused(tmp_path: Path) -> None:
    arrays = tiny_arrays()
    norm = arrays["model.norm.weight"]
    changed: dict[str, dict[str, Any]] = {
        "unknown": arrays | {"model.extra.weight": norm},
        "bias": arrays | {"model.layers.0.self_attn.q_proj.bias": norm},
        "layer": arrays | {"model.layers.2.input_layernorm.weight": norm},
        "missing": {name: array for name, array in arrays.items() if "norm" not in name},
        "wide": arrays | {"model.norm.weight": np.ones(17, np.float32)},
        "deep": arrays | {"model.norm.weight": np.ones((1, 16), np.float32)},
        "both": arrays | {"model.layers.0.mlp.gate_up_proj.weight": np.ones((48, 16), np.float16)},
    }
    for name, tensors in changed.items():
        folder = write_tiny_folder(tmp_path / name, arrays=tensors)
        assert code_of(folder) == "model_tensor_mismatch", name


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    for name, convert in (
        ("model.norm.weight", np.asarray),
        ("model.embed_tokens.weight", np.asarray),
        ("model.layers.1.self_attn.k_proj.weight", bfloat16),
    ):
        arrays = tiny_arrays()
        broken = np.ones(arrays[name].shape, np.float32)
        broken.flat[3] = value
        arrays[name] = convert(broken)
        assert code_of(write_tiny_folder(tmp_path, arrays=arrays)) == "model_file_malformed"


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    data = bytearray(gguf_bytes(tiny_metadata(), tiny_tensors()))
    data[-34 + 1] |= 0x7C  # the high byte of the last Q8_0 block's scale
    path = tmp_path / "nan.gguf"
    path.write_bytes(data)
    assert code_of(path) == "model_file_malformed"


def test_folders_without_their_files_are_refused(tmp_path: Path) -> None:
    assert code_of(tmp_path) == "not_safetensors"
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    assert code_of(tmp_path) == "not_safetensors"
    (tmp_path / "model.safetensors").mkdir()
    assert code_of(tmp_path) == "not_safetensors"


def test_long_files_are_refused_unread(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path)
    with (folder / "config.json").open("ab") as file:
        file.truncate(1 << 40)  # sparse
    assert code_of(folder) == "model_file_limit"


def test_old_checkpoints_rotary_constants_are_left_out(tmp_path: Path) -> None:
    arrays = tiny_arrays() | {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)
    }
    got = load_reference(write_tiny_folder(tmp_path / "old", arrays=arrays)).whole(TOKENS)
    want = load_reference(write_tiny_folder(tmp_path / "new")).whole(TOKENS)
    np.testing.assert_array_equal(got, want)


def test_a_head_that_is_tied_is_not_read(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path)
    (folder / "config.json").write_text(json.dumps(tiny_config(tie_word_embeddings=True)))
    arrays = tiny_arrays()
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].astype(np.float32)
    untied = write_tiny_folder(tmp_path / "untied", arrays=arrays)
    got, want = load_reference(folder).whole(TOKENS), load_reference(untied).whole(TOKENS)
    np.testing.assert_array_equal(got, want)


def test_the_same_weights_give_the_same_bytes() -> None:
    assert safetensors_bytes(tiny_arrays()) == safetensors_bytes(tiny_arrays())


def ones(*shape: int, value: float = 1.0) -> tuple[np.ndarray, int]:
    return np.full(shape, value, np.float32), 0


@pytest.mark.parametrize(
    ("metadata", "tensors", "code"),
    [
        ({}, {"rope_freqs.weight": ones(8)}, None),
        ({}, {"rope_freqs.weight": ones(7)}, "model_file_malformed"),
        ({}, {"rope_freqs.weight": ones(8, value=np.nan)}, "model_file_malformed"),
        ({}, {"rope_freqs.weight": ones(8, value=-1)}, "model_file_malformed"),
        ({}, {"rope_freqs.weight": ones(8, value=0)}, "model_file_malformed"),
        ({}, {"rope_freqs.weight": ones(2, 4)}, "model_tensor_mismatch"),
        ({}, {"rope_freqs.weight": ones(5000)}, "model_tensor_mismatch"),
        ({}, {"rope_factors_short.weight": ones(8)}, "model_file_unsupported"),
        ({}, {"blk.0.attn_q.bias": ones(64)}, "model_tensor_mismatch"),
        ({}, {"blk.7.attn_norm.weight": ones(64)}, "model_tensor_mismatch"),
        ({"llama.attention.sliding_window": 5}, {}, None),
        ({"llama.attention.sliding_window": "wide"}, {}, "model_file_malformed"),
        ({"llama.attention.sliding_window": 1 << 31}, {}, "model_file_limit"),
        ({"llama.rope.freq_base": 0.5}, {}, "model_file_malformed"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, {}, None),
        ({"llama.rope.scaling.factor": float("inf")}, {}, "model_file_malformed"),
        ({"llama.rope.scaling.type": ["linear"]}, {}, "model_file_malformed"),
        ({"llama.attention.causal": False}, {}, "model_file_unsupported"),
        ({"llama.attention.head_count_kv": [2, 2]}, {}, "model_file_malformed"),
        ({"llama.attention.key_length": 32}, {}, "model_tensor_mismatch"),
        ({"llama.attention.value_length": 32}, {}, "model_file_unsupported"),
    ],
)
def test_gguf_files_that_we_would_compute_wrongly_are_refused(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, Any], code: str | None
) -> None:
    path = tmp_path / "changed.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata() | metadata, tiny_tensors() | tensors))
    if code is None:
        assert np.isfinite(load_reference(path).whole(TOKENS)).all()
    else:
        assert code_of(path) == code


def test_stacked_tensors_whose_parts_do_not_add_up_are_refused(tmp_path: Path) -> None:
    tensors: dict[str, Any] = dict(tiny_tensors())
    for part in "qkv":
        del tensors[f"blk.0.attn_{part}.weight"]
    path = tmp_path / "stacked.gguf"
    for rows, code in ((127, "model_tensor_mismatch"), (129, "model_tensor_mismatch"), (128, None)):
        more = {"blk.0.attn_qkv.weight": ones(rows, 64)}
        path.write_bytes(gguf_bytes(tiny_metadata(), tensors | more))
        if code is None:
            assert np.isfinite(load_reference(path).whole(TOKENS)).all()
        else:
            assert code_of(path) == code
