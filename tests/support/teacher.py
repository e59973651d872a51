"""Texts of the default model's float32 reference, and where a runner would have said otherwise."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runtime.plan import StepPlan
from tests.support.plans import Chunk, build_plan
from tests.support.resources import vectors_dir

NUM_BLOCKS, BLOCK_SIZE = 64, 16  # of the runner


def load_reference() -> dict[str, Any]:
    text = (vectors_dir() / "model" / "smollm2-greedy.json").read_text()
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def margins_of_misses(
    reference: dict[str, Any], best_ids: Callable[[StepPlan], Sequence[int]]
) -> tuple[int, list[float]]:
    """How many positions there are, and the reference's margin at each where another token is best.

    ``best_ids`` runs a plan of one sequence and gives the best token at every position of it.
    """
    num_positions, margins = 0, []
    for row in reference["rows"]:
        prompt, answer = row["prompt_ids"], row["hf_f32_ids"]
        chunk = Chunk(
            token_ids=[*prompt, *answer[:-1]],
            start=0,
            block_ids=np.random.default_rng(0).permutation(NUM_BLOCKS).tolist(),
            all_logits=True,
        )
        best = best_ids(build_plan([chunk], block_size=BLOCK_SIZE))[len(prompt) - 1 :]
        missed = np.array(best) != np.array(answer)
        margins += np.array(row["hf_f32_margin"])[missed].tolist()
        num_positions += len(answer)
    assert num_positions == reference["teacher_forced_top1"]["positions"]
    return num_positions, margins
