"""Does the runner give the same logits however the tokens are cut, placed and batched?"""

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runtime.devices.registry import open_device
from runtime.errors import InvalidConfig, ModelFileError
from runtime.model_runner import LoadedModel, ModelRunner, count_blocks, load_model
from runtime.weights.quant import TENSOR_TYPES
from tests.support import tiny_model
from tests.support.plans import Chunk, build_plan
from tests.support.tiny_model import gguf_bytes, tiny_metadata, tiny_tensors, write_tiny_gguf

TOLERANCE = 2e-5  # float32 sums in another order; logits are of the order of 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    """The tiny model in plain torch."""
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    threads = torch.get_num_threads()
    yield load_model(path, device=open_device("cpu", num_threads=2))
    torch.set_num_threads(threads)


def tokens(count: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(0, len(tiny_model.tiny_vocabulary()), count)]


def whole(model: LoadedModel, token_ids: list[int], *, block_size: int = 16) -> np.ndarray:
    """Logits of every position from one prefill."""
    count = -(-len(token_ids) // block_size)
    runner = ModelRunner(model, num_blocks=count, block_size=block_size)
    chunk = Chunk(token_ids=token_ids, start=0, block_ids=range(count), all_logits=True)
    return runner.run(build_plan([chunk], block_size=block_size))


def naive_logits(token_ids: list[int]) -> np.ndarray:
    """The model by its formulas in float64 NumPy, straight from the stored tensors."""
    w: dict[str, Any] = {}
    for name, (array, kind) in tiny_tensors().items():
        raw = np.frombuffer(tiny_model.quantize(array, kind), np.uint8)
        w[name] = TENSOR_TYPES[kind].dequantize(raw).reshape(array.shape).astype(np.float64)
    heads, kv_heads, dim = tiny_model.NUM_HEADS, tiny_model.NUM_KV_HEADS, tiny_model.HEAD_DIM

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + tiny_model.EPS) * weight)

    def rotate(x: np.ndarray) -> np.ndarray:
        out = x.copy()
        for position in range(len(x)):
            for pair in range(dim // 2):
                angle = position * tiny_model.ROPE_THETA ** (-2 * pair / dim)
                a, b = x[position, :, 2 * pair], x[position, :, 2 * pair + 1]
                out[position, :, 2 * pair] = a * np.cos(angle) - b * np.sin(angle)
                out[position, :, 2 * pair + 1] = a * np.sin(angle) + b * np.cos(angle)
        return out

    x = w["token_embd.weight"][token_ids]
    length = len(token_ids)
    for layer in range(tiny_model.NUM_LAYERS):
        p = f"blk.{layer}."
        h = norm(x, w[p + "attn_norm.weight"])
        q = rotate((h @ w[p + "attn_q.weight"].T).reshape(length, heads, dim))
        k = rotate((h @ w[p + "attn_k.weight"].T).reshape(length, kv_heads, dim))
        v = (h @ w[p + "attn_v.weight"].T).reshape(length, kv_heads, dim)
        attended = np.zeros((length, heads, dim))
        for row in range(length):
            for head in range(heads):
                kv_head = head // (heads // kv_heads)
                scores = k[: row + 1, kv_head] @ q[row, head] / np.sqrt(dim)
                weights = np.exp(scores - scores.max())
                attended[row, head] = weights / weights.sum() @ v[: row + 1, kv_head]
        x = x + attended.reshape(length, -1) @ w[p + "attn_output.weight"].T
        h = norm(x, w[p + "ffn_norm.weight"])
        gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "ffn_down.weight"].T
    return np.asarray(norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T)


def test_logits_follow_the_formulas(model: LoadedModel) -> None:
    token_ids = tokens(37)
    np.testing.assert_allclose(whole(model, token_ids), naive_logits(token_ids), atol=TOLERANCE)


@pytest.mark.parametrize("cuts", [[1], [16], [5, 6, 40], list(range(1, 50))])
@pytest.mark.parametrize("block_size", [1, 7, 16])
def test_chunked_prefill_in_scrambled_blocks_gives_the_same_logits(
    model: LoadedModel, cuts: list[int], block_size: int
) -> None:
    token_ids = tokens(50)
    blocks = np.random.default_rng(1).permutation(60).tolist()
    runner = ModelRunner(model, num_blocks=60, block_size=block_size)
    edges = [0, *cuts, len(token_ids)]
    pieces = [
        runner.run(
            build_plan(
                [Chunk(token_ids=token_ids[a:b], start=a, block_ids=blocks, all_logits=True)],
                block_size=block_size,
            )
        )
        for a, b in pairwise(edges)
    ]
    want = whole(model, token_ids)
    np.testing.assert_allclose(np.concatenate(pieces), want, atol=TOLERANCE)


def test_sequences_in_one_step_do_not_see_each_other(model: LoadedModel) -> None:
    texts = [tokens(length, seed=length) for length in (3, 40, 17, 1)]
    runner = ModelRunner(model, num_blocks=16, block_size=16)
    tables = [range(4 * index, 4 * index + 4) for index in range(4)]
    prefill = [
        Chunk(token_ids=text[:-1], start=0, block_ids=table)
        for text, table in zip(texts, tables, strict=True)
        if len(text) > 1
    ]
    runner.run(build_plan(prefill, block_size=16))
    decode = [
        Chunk(token_ids=text[-1:], start=len(text) - 1, block_ids=table)
        for text, table in zip(texts, tables, strict=True)
    ]
    got = runner.run(build_plan(decode, block_size=16))
    assert got.shape == (4, model.config.vocab_size)
    for row, text in zip(got, texts, strict=True):
        np.testing.assert_allclose(row, whole(model, text)[-1], atol=TOLERANCE)


def test_without_logits_and_without_tokens(model: LoadedModel) -> None:
    runner = ModelRunner(model, num_blocks=4)
    assert runner.run(build_plan([], block_size=16)).shape == (0, model.config.vocab_size)


def test_the_whole_context_fits(model: LoadedModel) -> None:
    assert np.isfinite(whole(model, tokens(model.config.max_context_tokens))).all()


def test_loading_reports_progress_and_the_digest(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    heard: list[float] = []
    loaded = load_model(path, device=open_device("cpu", num_threads=1), on_progress=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
    assert loaded.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.name == "tiny"


def test_block_count_follows_the_bytes(model: LoadedModel) -> None:
    per_block = 2 * 2 * 2 * 16 * 16 * 4  # keys and values, layers, KV heads, dim, tokens, bytes
    assert count_blocks(model.config, kv_cache_bytes=10 * per_block + 1, block_size=16) == 10


def test_runners_need_blocks(model: LoadedModel) -> None:
    with pytest.raises(InvalidConfig):
        ModelRunner(model, num_blocks=0)


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(InvalidConfig):
        open_device("abacus")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"general.architecture": "mamba"}, "model_file_unsupported"),
        ({"llama.block_count": 3}, "model_tensor_mismatch"),
        ({"llama.block_count": 1}, "model_tensor_mismatch"),
        ({"llama.block_count": 10**6}, "model_file_limit"),
        ({"llama.feed_forward_length": 128}, "model_tensor_mismatch"),
        ({"llama.attention.head_count_kv": 3}, "model_file_malformed"),
        ({"llama.attention.head_count": 0}, "model_file_malformed"),
        ({"llama.rope.dimension_count": 7}, "model_file_unsupported"),
        ({"llama.rope.scaling.type": "yarn"}, "model_file_malformed"),
        ({"llama.rope.scaling.type": "longrope"}, "model_file_unsupported"),
        ({"llama.expert_count": 8}, "model_file_unsupported"),
        ({"llama.rope.freq_base": float("nan")}, "model_file_malformed"),
        ({"llama.vocab_size": 5}, "model_file_unsupported"),
    ],
)
def test_models_that_we_would_compute_wrongly_are_refused(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    path = tmp_path / "changed.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata() | changes, tiny_tensors()))
    with pytest.raises(ModelFileError) as caught:
        load_model(path, device=open_device("cpu", num_threads=1))
    assert caught.value.code == code
