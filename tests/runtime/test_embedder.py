"""Are embeddings the pooled states that the logits are made of, however they are computed?"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.devices.registry import open_device
from runtime.embedder import Embedder
from runtime.errors import InvalidPrompt, PromptTooLong
from runtime.model_runner import LoadedModel, ModelRunner, load_model
from runtime.plan import Float32Array, StepPlan
from runtime.tokenizer import Tokenizer
from tests.support.tiny_model import (
    CONTEXT_TOKENS,
    EOS_TOKEN_ID,
    HIDDEN,
    gguf_bytes,
    tiny_metadata,
    tiny_tensors,
)

TEXT = list(range(20, 57))
POOLINGS = {"mean": 1, "last": 3}


def model_with(folder: Path, **metadata: Any) -> LoadedModel:
    path = folder / "tiny.gguf"
    changes = {f"llama.{name}": value for name, value in metadata.items()}
    path.write_bytes(gguf_bytes(tiny_metadata() | changes, tiny_tensors(seed=5)))
    return load_model(path, device=open_device("cpu", num_threads=1))


def logits_of(model: LoadedModel, token_ids: list[int]) -> Float32Array:
    """(T, V), of every token of one sequence; the tiny model's head is its embedding."""
    num = len(token_ids)
    positions = np.arange(num, dtype=np.int32)
    plan = StepPlan(
        token_ids=np.array(token_ids, np.int32),
        positions=positions,
        query_starts=np.array([0, num], np.int32),
        context_lens=np.array([num], np.int32),
        prompt_lens=np.array([num], np.int32),
        batch_invariant=np.array([True]),
        block_tables=np.arange(-(-num // 16), dtype=np.int32)[None],
        slot_mapping=positions.astype(np.int64),
        logits_rows=positions,
    )
    return ModelRunner(model, num_blocks=CONTEXT_TOKENS // 16).run(plan)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("max_batch_tokens", [1, 7, 512])
def test_it_is_what_the_logits_are_made_of(
    tmp_path: Path, pooling: str, max_batch_tokens: int
) -> None:
    model = model_with(tmp_path, pooling_type=POOLINGS[pooling])
    embedder = Embedder(model, max_tokens=100, max_batch_tokens=max_batch_tokens)
    vector = embedder.embed(TEXT)
    logits = logits_of(model, TEXT)
    wanted = logits[-1] if pooling == "last" else logits.mean(axis=0)
    got = np.asarray(model.weights.embedding) @ vector
    assert vector.shape == (HIDDEN,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(
        got / np.linalg.norm(got), wanted / np.linalg.norm(wanted), atol=2e-6
    )


def test_nothing_of_one_text_is_left_for_the_next(tmp_path: Path) -> None:
    embedder = Embedder(model_with(tmp_path, pooling_type=3), max_tokens=64)
    first = embedder.embed(TEXT[:5])
    embedder.embed(TEXT)
    np.testing.assert_array_equal(embedder.embed(TEXT[:5]), first)


def test_what_it_refuses(tmp_path: Path) -> None:
    embedder = Embedder(model_with(tmp_path, pooling_type=1), max_tokens=8)
    with pytest.raises(PromptTooLong):
        embedder.embed(TEXT[:9])
    for token_ids in ([], [-1], [100_000]):
        with pytest.raises(InvalidPrompt):
            embedder.embed(token_ids)


@pytest.mark.parametrize("metadata", [{}, {"pooling_type": 0}, {"pooling_type": 2}])
def test_a_model_that_says_of_no_pooling_it_knows_makes_none(
    tmp_path: Path, metadata: dict[str, int]
) -> None:
    model = model_with(tmp_path, **metadata)
    assert model.config.pooling == "none"
    with pytest.raises(ValueError, match="no pooling"):
        Embedder(model, max_tokens=8)


def test_a_document_ends_as_its_model_expects() -> None:
    plain = Tokenizer(tiny_metadata())
    ending = Tokenizer(tiny_metadata() | {"tokenizer.ggml.add_eos_token": True})
    assert plain.encode_document("the user") == plain.encode_prompt("the user")
    assert ending.encode_document("the user") == [*plain.encode_prompt("the user"), EOS_TOKEN_ID]
    assert ending.encode_prompt("the user") == plain.encode_prompt("the user")
