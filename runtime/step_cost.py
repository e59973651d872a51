"""How long will a step take, and how many prompt tokens fit into a given time?

The model of a step's time is ``a + b * tokens + c * pairs``: a fixed part (weights are read once),
a part for each token (matrix products) and one for each (query, key) pair of attention. The three
are followed by a Kalman filter over the relative error of measured steps, so a stall moves them
little and a slower machine moves them soon. Nothing here reads a clock.
"""

from math import inf, sqrt
from typing import Final

_PRIOR: Final = (2e-3, 4e-4, 1e-7)  # s, s per token, s per pair; replaced by the first measurements
_PRIOR_VARIANCE: Final = 100.0  # relative to the prior: anything is possible
_MAX_VARIANCE: Final = 25.0
_DRIFT_VARIANCE: Final = 1e-4  # a step, relative: what is unmeasured becomes uncertain again
_NOISE_VARIANCE: Final = 0.01  # steps of equal work differ by a tenth
_MAX_SIGMAS: Final = 3.0  # further off is an outlier and pulls no harder than this
_MIN_FACTOR: Final = 1e-4  # of the prior; each part stays positive


def count_pairs(start: int, num_tokens: int) -> int:
    """(query, key) pairs of ``num_tokens`` tokens that follow ``start`` computed ones."""
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


class StepCostModel:
    """Learns from ``observe``; all times are seconds."""

    def __init__(self) -> None:
        self._factors = [1.0, 1.0, 1.0]  # of the prior
        self._cov = [[_PRIOR_VARIANCE if i == j else 0.0 for j in range(3)] for i in range(3)]
        self.num_observed = 0

    @property
    def parts(self) -> tuple[float, float, float]:
        """(a, b, c): seconds a step, a token, a pair."""
        f = self._factors
        return _PRIOR[0] * f[0], _PRIOR[1] * f[1], _PRIOR[2] * f[2]

    def predict(self, num_tokens: int, num_pairs: int) -> float:
        a, b, c = self.parts
        return a + b * num_tokens + c * num_pairs

    def affordable_tokens(self, budget_s: float, *, start: int) -> float:
        """The most tokens (maybe a fraction) after ``start`` that take ``budget_s`` more."""
        if budget_s <= 0:
            return 0.0
        if budget_s == inf:
            return inf
        _, b, c = self.parts
        linear, square = b + c * (start + 0.5), c / 2  # b n + c (n start + n (n + 1) / 2)
        return 2 * budget_s / (linear + sqrt(linear * linear + 4 * square * budget_s))

    def observe(self, num_tokens: int, num_pairs: int, step_s: float) -> None:
        """A step of this work took ``step_s``; one that took no time says nothing."""
        if step_s <= 0 or num_tokens <= 0:
            return
        self.num_observed += 1
        x = [_PRIOR[0] / step_s, _PRIOR[1] * num_tokens / step_s, _PRIOR[2] * num_pairs / step_s]
        cov, factors = self._cov, self._factors
        for i in range(3):
            if cov[i][i] < _MAX_VARIANCE:  # adding keeps the matrix definite, cutting would not
                cov[i][i] += _DRIFT_VARIANCE
        gain = [cov[i][0] * x[0] + cov[i][1] * x[1] + cov[i][2] * x[2] for i in range(3)]
        variance = max(0.0, x[0] * gain[0] + x[1] * gain[1] + x[2] * gain[2]) + _NOISE_VARIANCE
        error = 1.0 - (x[0] * factors[0] + x[1] * factors[1] + x[2] * factors[2])
        bound = _MAX_SIGMAS * sqrt(variance)
        error = max(-bound, min(bound, error))
        for i in range(3):
            factors[i] = max(factors[i] + gain[i] * error / variance, _MIN_FACTOR)
        self._cov = [[cov[i][j] - gain[i] * gain[j] / variance for j in range(3)] for i in range(3)]


class PrefillBudget:
    """What is left for prompts in one step: tokens, and time beside those who decode.

    The first ``floor_tokens`` are granted whatever they take, so that a prompt always advances.
    """

    __slots__ = ("_cost", "_floor", "_time_s", "_tokens", "num_granted")

    def __init__(
        self, cost: StepCostModel, *, max_tokens: int, time_s: float, floor_tokens: int
    ) -> None:
        self._cost = cost
        self._tokens = max_tokens
        self._time_s = time_s
        self._floor = min(floor_tokens, max_tokens)
        self.num_granted = 0

    def room(self, *, start: int) -> int:
        """Tokens that could be granted now to a sequence with ``start`` computed ones."""
        affordable = self._cost.affordable_tokens(self._time_s, start=start)
        return max(min(self._tokens, int(min(affordable, self._tokens))), self._floor)

    def take(self, num_wanted: int, *, start: int) -> int:
        """Grant up to ``num_wanted`` tokens after ``start``; how many it grants."""
        num_tokens = min(num_wanted, self.room(start=start))
        if num_tokens > 0:
            self.num_granted += num_tokens
            self._tokens -= num_tokens
            self._floor = max(0, self._floor - num_tokens)
            if self._time_s != inf:
                _, b, c = self._cost.parts
                self._time_s -= b * num_tokens + c * count_pairs(start, num_tokens)
        return num_tokens
