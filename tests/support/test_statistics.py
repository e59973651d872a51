"""Do the statistics know a difference when there is one, and none when there is none?"""

import random

import pytest

from tests.support.statistics import cross_validated_accuracy, ks_p_value


@pytest.mark.parametrize(
    ("distance", "p"),
    [(0.0, 1.0), (0.20, 0.2377), (0.30, 0.0171), (0.5, 3.1e-6)],
)
def test_ks_agrees_with_published_values(distance: float, p: float) -> None:
    """Of 50 against 50 that are `distance` apart, by the same approximation."""
    num_moved = round(50 * distance)
    first = [float(i) for i in range(50)]
    second = [i + 100.0 for i in range(num_moved)] + first[num_moved:]
    assert ks_p_value(first, second) == pytest.approx(p, rel=0.25, abs=1e-7)


def test_ks_finds_nothing_in_two_samples_of_one_kind() -> None:
    rng = random.Random(1)
    values = [
        ks_p_value([rng.random() for _ in range(60)], [rng.random() for _ in range(60)])
        for _ in range(200)
    ]
    assert 0 <= sum(value < 0.01 for value in values) <= 6


def test_a_classifier_tells_different_sequences_apart_and_guesses_at_equal_ones() -> None:
    rng = random.Random(2)

    def sequences(weights: list[int]) -> list[list[int]]:
        return [rng.choices(range(4), weights, k=20) for _ in range(300)]

    assert cross_validated_accuracy([sequences([1, 1, 1, 1]), sequences([4, 1, 1, 1])]) > 0.8
    assert 0.42 < cross_validated_accuracy([sequences([1] * 4), sequences([1] * 4)]) < 0.58
    assert cross_validated_accuracy([[[256] * 20] * 50, [[256] * 20] * 50]) == 0.5
