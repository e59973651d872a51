"""Is each draw from the truncated distribution, and a function of seed and step alone?"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampler import (
    BROKEN_ROW,
    NonFiniteLogitsError,
    Sampler,
    SampleRow,
    sample_row,
    uniform,
)
from runtime.sampling import SamplingParams

VOCABULARY = 1000
SAMPLER = Sampler()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def row(self, seed: int = 0, step: int = 0) -> SampleRow:
        params = SamplingParams(
            max_tokens=1, temperature=self.temperature, top_p=self.top_p, top_k=self.top_k
        )
        return SampleRow(params=params, rng_seed=seed, step=step)


def random_logits(rows: int, *, spread: float = 2.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, (rows, VOCABULARY)).astype(np.float32)


def drawn(logits: np.ndarray, case: Case, count: int) -> list[int]:
    rows = [case.row(seed=5, step=step) for step in range(count)]
    return SAMPLER.sample(np.repeat(logits[:1], count, axis=0), rows)


def test_greedy_takes_the_best_and_the_first_of_equals() -> None:
    logits = random_logits(3)
    logits[2, [7, 9]] = 50
    assert SAMPLER.sample(logits, [Case(temperature=0.0).row()] * 3) == [
        int(logits[0].argmax()),
        int(logits[1].argmax()),
        7,
    ]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300])
@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_the_coldest_temperature_is_greedy(temperature: float, top_p: float) -> None:
    logits = random_logits(1)
    case = Case(temperature=temperature, top_p=top_p)
    assert set(drawn(logits, case, 20)) == {int(logits[0].argmax())}


@pytest.mark.parametrize("top_k", [1, 2, 40, VOCABULARY, 5 * VOCABULARY])
def test_top_k_draws_from_the_k_best(top_k: int) -> None:
    logits = random_logits(1, spread=0.1)
    best = set(np.argsort(-logits[0])[:top_k].tolist())
    tokens = set(drawn(logits, Case(top_k=top_k), 500))
    assert tokens <= best
    assert len(tokens) >= min(top_k, 30)


@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.01, 3.0])  # nuclei wider and narrower than a first look
def test_top_p_draws_from_the_nucleus(top_p: float, spread: float) -> None:
    logits = random_logits(1, spread=spread)
    order = np.argsort(-logits[0], kind="stable")
    weights = np.exp(logits[0, order].astype(np.float64))
    size = int(np.searchsorted(weights.cumsum() / weights.sum(), top_p)) + 1
    tokens = set(drawn(logits, Case(top_p=top_p), 500))
    assert tokens <= set(order[:size].tolist())
    if spread < 1 and top_p > 0.5:
        assert len(tokens) > 300


def test_top_p_is_taken_of_what_top_k_left() -> None:
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))
    # Of the best two, 0.4 / 0.7 = 0.57 is more than half: only the first stays.
    assert set(drawn(logits, Case(top_k=2, top_p=0.5), 100)) == {0}
    assert set(drawn(logits, Case(top_k=2, top_p=0.6), 100)) == {0, 1}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature: float) -> None:
    logits = np.array([[0.0, 1.0, 2.0, -1.0]], np.float32)
    weights = np.exp(logits[0] / temperature)
    counts = np.bincount(drawn(logits, Case(temperature=temperature), 4000), minlength=4)
    np.testing.assert_allclose(counts / 4000, weights / weights.sum(), atol=0.03)


@settings(deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 10_000),
    st.sampled_from([0, 5]),
    st.sampled_from([1.0, 0.8]),
    st.integers(1, 5),
)
def test_a_draw_does_not_depend_on_the_batch(
    seed: int, step: int, top_k: int, top_p: float, num_others: int
) -> None:
    row = Case(top_k=top_k, top_p=top_p).row(seed, step)
    others = [Case(temperature=index / 2).row(index, index) for index in range(num_others)]
    logits = random_logits(num_others + 1, seed=step)
    place = step % (num_others + 1)
    rows = [*others[:place], row, *others[place:]]
    assert (
        SAMPLER.sample(logits, rows)[place] == SAMPLER.sample(logits[place : place + 1], [row])[0]
    )


def test_seeds_and_steps_give_different_draws() -> None:
    numbers = {uniform(seed, step) for seed in range(50) for step in range(50)}
    assert len(numbers) == 2500
    assert all(0 <= number < 1 for number in numbers)
    assert uniform(2**64 - 1, 0) != uniform(-1, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_broken_logits_are_an_error_of_their_row(bad: float) -> None:
    logits = random_logits(2)
    logits[0, 17] = bad
    broken, whole = SAMPLER.sample(logits, [Case().row(), Case().row()])
    assert broken == BROKEN_ROW
    assert whole == SAMPLER.sample(logits[1:], [Case().row()])[0]
    with pytest.raises(NonFiniteLogitsError):
        sample_row(logits[0], Case().row())


def test_rows_must_match() -> None:
    with pytest.raises(ValueError, match="2 rows of logits for 1"):
        SAMPLER.sample(random_logits(2), [Case().row()])


def test_no_rows_no_tokens() -> None:
    assert SAMPLER.sample(np.empty((0, VOCABULARY), np.float32), []) == []
