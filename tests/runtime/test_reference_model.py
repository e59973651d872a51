"""Does the default model say what its float32 reference says, token by token?"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from runtime.devices.registry import open_device
from runtime.model_runner import LoadedModel, ModelRunner, load_model
from tests.support.resources import model_path
from tests.support.teacher import BLOCK_SIZE, NUM_BLOCKS, load_reference, margins_of_misses

pytestmark = pytest.mark.model

MIN_AGREEMENT = 0.995
MAX_MARGIN_OF_MISSES = 0.02  # logits nearer than this may swap by rounding


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return load_reference()


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
    runner = ModelRunner(model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    num_positions, misses = margins_of_misses(
        reference, lambda plan: runner.run(plan).argmax(-1).tolist()
    )
    assert len(misses) <= (1 - MIN_AGREEMENT) * num_positions
    assert all(margin < MAX_MARGIN_OF_MISSES for margin in misses)
