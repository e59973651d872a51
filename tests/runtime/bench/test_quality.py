"""Is perplexity that of the definition, and does agreement count each miss with its margin?"""

import json
from math import exp
from pathlib import Path

import numpy as np
import pytest

from runtime.bench.quality import agreement_cells, logits_of, perplexity_cells
from runtime.bench.references import Reference, load_references
from runtime.bench.report import NotMeasurable
from runtime.plan import Float32Array
from tests.support.fake_runner import VOCAB_SIZE, FakeRunner

IDS = [idx * 7 % VOCAB_SIZE for idx in range(40)]


def runner() -> FakeRunner:
    return FakeRunner(num_blocks=12, block_size=4)


def all_logits(token_ids: list[int]) -> Float32Array:
    """Of every row, computed in one step."""
    [(first, logits)] = list(logits_of(runner(), token_ids, prompt_len=0, first_row=0, chunk=1000))
    assert first == 0
    return logits


@pytest.mark.parametrize("chunk", [1, 3, 16, 100])
def test_logits_come_in_chunks_and_are_those_of_one_step(chunk: int) -> None:
    found = list(logits_of(runner(), IDS, prompt_len=0, first_row=5, chunk=chunk))
    assert np.array_equal(np.concatenate([logits for _, logits in found]), all_logits(IDS)[5:])
    assert found[0][0] == 5


@pytest.mark.parametrize("chunk", [3, 16])
def test_perplexity_scores_the_second_half_of_each_window(chunk: int) -> None:
    window = 16
    losses = []
    for start in (0, 16):  # the eight ids after the second window are not one
        ids = IDS[start : start + window]
        logits = all_logits(ids).astype(np.float64)
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses += [-np.log(probabilities[row, ids[row + 1]]) for row in range(8, 15)]
    cells = perplexity_cells(runner(), IDS, window, chunk)
    assert cells["perplexity"] == pytest.approx(exp(float(np.mean(losses))), rel=1e-5)
    assert (cells["windows"], cells["scored_tokens"]) == (2, 14)
    assert perplexity_cells(runner(), IDS, window, chunk, 1)["scored_tokens"] == 7


def test_a_short_text_has_no_perplexity() -> None:
    with pytest.raises(NotMeasurable, match="3 tokens"):
        perplexity_cells(runner(), IDS[:3], 16, 4)


def test_agreement_counts_misses_and_their_margins() -> None:
    prompt = (1, 2, 3)
    output: list[int] = []
    for _ in range(6):
        output.append(int(all_logits([*prompt, *output])[-1].argmax()))
    margins = tuple(0.1 * (1 + idx) for idx in range(6))
    right = Reference(prompt_ids=prompt, output_ids=tuple(output), margins=margins)
    cells = agreement_cells(runner(), [right], chunk=2)
    assert (cells["positions"], cells["agree"]) == (6, 6)
    assert cells["miss_margin_max"] is None
    last = (output[-1] + 1) % VOCAB_SIZE
    wrong = Reference(prompt_ids=prompt, output_ids=(*output[:-1], last), margins=margins)
    cells = agreement_cells(runner(), [right, wrong], chunk=2)
    assert (cells["positions"], cells["agree"]) == (12, 11)
    assert cells["miss_margin_max"] == pytest.approx(0.6)


def row(**changes: object) -> dict[str, object]:
    good = {"prompt_ids": [1, 2], "hf_f32_ids": [3], "hf_f32_margin": [0.5]}
    return {**good, **changes}


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_references_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", {"sha256": "ab", "rows": [row()]})
    (found,) = load_references(path, weights_sha256="ab")
    assert (found.token_ids, found.margins) == ((1, 2, 3), (0.5,))


@pytest.mark.parametrize(
    "value",
    [
        {"sha256": "cd", "rows": [row()]},
        {"sha256": "ab", "rows": []},
        {"sha256": "ab"},
        {"sha256": "ab", "rows": [row(hf_f32_margin=[])]},
        {"sha256": "ab", "rows": [row(prompt_ids=["1"])]},
        {"sha256": "ab", "rows": [row(hf_f32_ids=[])]},
        [],
    ],
)
def test_other_files_are_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(NotMeasurable):
        load_references(write(tmp_path / "r.json", value), weights_sha256="ab")
