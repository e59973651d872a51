"""Does what was observed depend on a secret?  Two answers that a test can put a bound on.

`ks_p_value` asks whether two samples come from one distribution; `cross_validated_accuracy` how
often a naive Bayes classifier tells two classes apart by counts of what was seen.
"""

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

_TERMS = 100  # of a series whose terms shrink as exp(-k^2)
_FOLDS = 5
_SMOOTHING = 0.5


def ks_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sample Kolmogorov-Smirnov, asymptotic; samples of a few dozen or more."""
    a, b = np.sort(first), np.sort(second)
    both = np.concatenate([a, b])
    steps_a = np.searchsorted(a, both, side="right") / len(a)
    steps_b = np.searchsorted(b, both, side="right") / len(b)
    distance = float(np.max(np.abs(steps_a - steps_b)))
    size = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (size + 0.12 + 0.11 / size) * distance  # [Stephens 1970]
    if scaled < 0.2:  # where the series converges too slowly, and is 1 to ten digits
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, _TERMS))
    return min(max(2.0 * float(sum(terms)), 0.0), 1.0)


def cross_validated_accuracy(classes: Sequence[Sequence[Sequence[Hashable]]]) -> float:
    """How often two classes of sequences are told apart; 0.5 is guessing. Ties are lost half.

    Each sequence is judged by a multinomial naive Bayes over its items and its pairs of items,
    trained on the other folds. Classes are of one size.
    """
    counted = [[_features(sequence) for sequence in each] for each in classes]
    num_right = 0.0
    for fold in range(_FOLDS):
        models = [
            sum((each[i] for i in range(len(each)) if i % _FOLDS != fold), Counter())
            for each in counted
        ]
        vocabulary = len(set().union(*models)) + 1
        for label, each in enumerate(counted):
            for features in each[fold::_FOLDS]:
                scores = [_score(features, model, vocabulary) for model in models]
                if math.isclose(*scores):
                    num_right += 0.5
                else:
                    num_right += scores[label] == max(scores)
    return num_right / sum(map(len, counted))


def _features(sequence: Sequence[Hashable]) -> Counter[Hashable]:
    return Counter([*sequence, *itertools.pairwise(sequence)])


def _score(features: Counter[Hashable], model: Counter[Hashable], vocabulary: int) -> float:
    total = sum(model.values()) + _SMOOTHING * vocabulary
    return sum(
        count * math.log((model[feature] + _SMOOTHING) / total)
        for feature, count in features.items()
    )
