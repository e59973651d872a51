"""Does the default model say what its float32 reference says, token by token?"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from runtime.devices.registry import open_device
from runtime.model_runner import LoadedModel, ModelRunner, load_model
from tests.support.plans import Chunk, build_plan
from tests.support.resources import model_path, vectors_dir

pytestmark = pytest.mark.model

MIN_AGREEMENT = 0.995
MAX_MARGIN_OF_MISSES = 0.02  # logits nearer than this may swap by rounding
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    text = (vectors_dir() / "model" / "smollm2-greedy.json").read_text()
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@pytest.fixture(scope="module")
def model() -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    yield load_model(model_path(), device=open_device("cpu"))
    torch.set_num_threads(threads)


def test_the_file_is_the_one_the_reference_was_made_from(
    model: LoadedModel, reference: dict[str, Any]
) -> None:
    assert model.weights_sha256 == reference["sha256"]


def test_prompts_have_the_reference_ids(model: LoadedModel, reference: dict[str, Any]) -> None:
    tokenizer = model.tokenizer
    for row in reference["rows"]:
        if messages := row.get("messages"):
            assert tokenizer.encode_chat(messages) == row["prompt_ids"], row["id"]
        assert tokenizer.encode(row["prompt"], special=True) == row["prompt_ids"], row["id"]


def test_answers_have_the_reference_texts(model: LoadedModel, reference: dict[str, Any]) -> None:
    for row in reference["rows"]:
        got = model.tokenizer.decode(row["hf_f32_ids"], skip_special=False)
        assert got == row["hf_f32_text"], row["id"]


def test_teacher_forced_top1_agrees(model: LoadedModel, reference: dict[str, Any]) -> None:
    runner = ModelRunner(model, num_blocks=64, block_size=BLOCK_SIZE)
    num_positions, misses = 0, []
    for row in reference["rows"]:
        prompt, answer = row["prompt_ids"], row["hf_f32_ids"]
        chunk = Chunk(
            token_ids=[*prompt, *answer[:-1]],
            start=0,
            block_ids=np.random.default_rng(0).permutation(64).tolist(),
            all_logits=True,
        )
        logits = runner.run(build_plan([chunk], block_size=BLOCK_SIZE))[len(prompt) - 1 :]
        missed = logits.argmax(-1) != np.array(answer)
        misses += np.array(row["hf_f32_margin"])[missed].tolist()
        num_positions += len(answer)
    assert num_positions == reference["teacher_forced_top1"]["positions"]
    assert len(misses) <= (1 - MIN_AGREEMENT) * num_positions
    assert all(margin < MAX_MARGIN_OF_MISSES for margin in misses)
