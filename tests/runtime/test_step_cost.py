"""Does the cost model find what steps cost, and does a budget spend no more than it has?"""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.step_cost import PrefillBudget, StepCostModel, count_pairs
from tests.runtime.harness import PATIENT

SLOW_CPU = (3.2e-3, 3.7e-4, 1.7e-7)
GPU = (9e-3, 6e-6, 4e-10)


def true_s(cost: tuple[float, float, float], num_tokens: int, num_pairs: int) -> float:
    return cost[0] + cost[1] * num_tokens + cost[2] * num_pairs


def learnt(
    cost: tuple[float, float, float], *, noise: float = 0.1, num_steps: int = 400, seed: int = 0
) -> StepCostModel:
    """After some prefill, much decoding, and prompts that ride along now and then."""
    rng = np.random.default_rng(seed)
    model = StepCostModel()
    for step in range(num_steps):
        num_prompt = 512 if step < 3 else int(rng.integers(16, 80)) if step % 40 > 30 else 0
        num_tokens = 8 * (step >= 3) + num_prompt
        num_pairs = 8 * (200 + step) + count_pairs(step, num_prompt)
        taken_s = true_s(cost, num_tokens, num_pairs) * rng.lognormal(0, noise)
        model.observe(num_tokens, num_pairs, taken_s)
    return model


def test_pairs_are_counted_one_token_at_a_time() -> None:
    assert count_pairs(5, 3) == sum(position + 1 for position in (5, 6, 7))
    assert count_pairs(0, 0) == 0


@pytest.mark.parametrize("cost", [SLOW_CPU, GPU])
@pytest.mark.parametrize("seed", range(5))
def test_what_steps_cost_is_found_within_the_noise(
    cost: tuple[float, float, float], seed: int
) -> None:
    model = learnt(cost, seed=seed)
    for num_tokens, num_pairs in ((8, 3000), (60, 12_000), (250, 60_000)):
        want_s = true_s(cost, num_tokens, num_pairs)
        assert model.predict(num_tokens, num_pairs) == pytest.approx(want_s, rel=0.15)


def test_a_stall_moves_little() -> None:
    model = learnt(SLOW_CPU)
    before_s = model.predict(8, 3000)
    model.observe(8, 3000, 50 * before_s)
    assert model.predict(8, 3000) < 1.5 * before_s


def test_a_slower_machine_is_noticed_soon() -> None:
    model = learnt(SLOW_CPU)
    slow_s = 4 * model.predict(8, 3000)
    for _ in range(20):
        model.observe(8, 3000, slow_s)
    assert model.predict(8, 3000) == pytest.approx(slow_s, rel=0.15)


def test_a_step_of_no_time_or_tokens_says_nothing() -> None:
    model = StepCostModel()
    model.observe(8, 100, 0.0)
    model.observe(0, 0, 1.0)
    assert model.parts == StepCostModel().parts


@PATIENT
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4096), st.integers(0, 1 << 30), st.floats(1e-9, 1e3)), max_size=80
    )
)
def test_no_history_makes_it_useless(steps: list[tuple[int, int, float]]) -> None:
    model = StepCostModel()
    for num_tokens, num_pairs, step_s in steps:
        model.observe(num_tokens, num_pairs, step_s)
    assert all(0 < part < inf for part in model.parts)


@PATIENT
@given(
    start=st.integers(0, 100_000),
    time_s=st.floats(0, 1),
    max_tokens=st.integers(0, 4096),
    floor_tokens=st.integers(1, 64),
    wants=st.lists(st.integers(1, 600), max_size=6),
)
def test_a_budget_grants_what_fits_and_the_floor_at_least(
    start: int, time_s: float, max_tokens: int, floor_tokens: int, wants: list[int]
) -> None:
    model = StepCostModel()
    budget = PrefillBudget(model, max_tokens=max_tokens, time_s=time_s, floor_tokens=floor_tokens)
    spent_s, granted = 0.0, 0
    _, b, c = model.parts
    for want in wants:
        num_tokens = budget.take(want, start=start)
        assert num_tokens <= want
        granted += num_tokens
        spent_s += b * num_tokens + c * count_pairs(start, num_tokens)
    assert granted == budget.num_granted <= max_tokens
    assert granted >= min(floor_tokens, max_tokens, sum(wants))
    if granted > floor_tokens:  # no more than a rest that is not worth a step
        rest = floor_tokens + min(model.overhead_tokens, granted / 2)
        assert spent_s <= time_s * (1 + 1e-9) + rest * (b + c * (start + granted))


def test_without_a_bound_on_time_only_tokens_count() -> None:
    budget = PrefillBudget(StepCostModel(), max_tokens=100, time_s=inf, floor_tokens=1)
    assert [budget.take(70, start=10**6), budget.take(70, start=0), budget.room(start=0)] == [
        70,
        30,
        0,
    ]


def test_later_tokens_of_a_prompt_get_less_room() -> None:
    budget = PrefillBudget(StepCostModel(), max_tokens=4096, time_s=0.1, floor_tokens=1)
    assert budget.room(start=0) > budget.room(start=8_000) > 1


def test_a_new_engine_takes_a_step_for_two_dozen_tokens() -> None:
    assert StepCostModel().overhead_tokens == pytest.approx(24)


@pytest.mark.parametrize(
    ("num_wanted", "max_tokens", "granted"),
    [(60, 512, 60), (400, 512, 50), (60, 55, 50), (67, 512, 50), (15, 512, 15)],
)
def test_a_rest_that_is_not_worth_a_step_is_taken_along(
    num_wanted: int, max_tokens: int, granted: int
) -> None:
    class Cost(StepCostModel):
        overhead_tokens = 16.0

    cost = Cost()
    _, b, c = cost.parts
    time_s = 50.5 * b + c * count_pairs(0, 50)
    budget = PrefillBudget(cost, max_tokens=max_tokens, time_s=time_s, floor_tokens=1)
    assert budget.take(num_wanted, start=0) == granted
