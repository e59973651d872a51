"""How long will a step take, and how many prompt tokens fit into a given time?

The model of a step's time is ``a + b * tokens + c * pairs``: a fixed part (weights are read once),
a part for each token (matrix products) and one for each (query, key) pair of attention. The three
are followed by a Kalman filter over the relative error of measured steps, so a stall moves them
little and a slower machine moves them soon. Nothing here reads a clock.
"""

from math import inf, sqrt
from typing import Final

_PRIOR: Final = (6e-3, 2.5e-4, 1e-7)  # s, s per token, s per pair; the first step sets their scale
_PRIOR_VARIANCE: Final = 1.0  # relative: each part may be nothing, or a few times what it seems
_MAX_VARIANCE: Final = 100.0
_DRIFT_VARIANCE: Final = 2e-5  # a step, relative: what is not measured becomes uncertain again
_NOISE_VARIANCE: Final = 0.01  # steps of equal work differ by a tenth
_MAX_SIGMAS: Final = 3.0  # further off is an outlier and pulls no harder than this
_MAX_OUTLIERS: Final = 3  # so many in a row are no outliers: the machine has changed
_MIN_OVERHEAD: Final = 16.0  # tokens: the fixed part alone is ill determined
_MAX_OVERHEAD: Final = 128.0
_MIN_FACTOR: Final = 1e-3  # of the prior; each part stays positive


def count_pairs(start: int, num_tokens: int) -> int:
    """(query, key) pairs of ``num_tokens`` tokens that follow ``start`` computed ones."""
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


class StepCostModel:
    """Learns from ``observe``; all times are seconds."""

    def __init__(self) -> None:
        self.num_observed = 0
        self._start_from(_PRIOR)

    def _start_from(self, prior: tuple[float, float, float]) -> None:
        self._prior = prior
        self._factors = [1.0, 1.0, 1.0]  # of the prior
        self._cov = [[_PRIOR_VARIANCE if i == j else 0.0 for j in range(3)] for i in range(3)]
        self._num_outliers = 0  # in a row, negative where steps took less than predicted

    @property
    def parts(self) -> tuple[float, float, float]:
        """(a, b, c): seconds a step, a token, a pair."""
        p, f = self._prior, self._factors
        return p[0] * f[0], p[1] * f[1], p[2] * f[2]

    @property
    def overhead_tokens(self) -> float:
        """What a step costs besides its tokens, in tokens; those who decode not counted."""
        a, b, _ = self.parts
        return min(max(a / b, _MIN_OVERHEAD), _MAX_OVERHEAD)

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
        if self.num_observed == 0:
            scale = step_s / self.predict(num_tokens, num_pairs)
            self._start_from((_PRIOR[0] * scale, _PRIOR[1] * scale, _PRIOR[2] * scale))
        self.num_observed += 1
        predicted_s = self.predict(num_tokens, num_pairs)
        a, b, c = self._prior
        parts = [a / predicted_s, b * num_tokens / predicted_s, c * num_pairs / predicted_s]
        self._correct(parts, step_s / predicted_s - 1.0)

    def _correct(self, x: list[float], error: float) -> None:
        """One step of the filter: ``x`` times the factors is 1 and should be 1 + ``error``."""
        cov, factors = self._cov, self._factors
        for i in range(3):
            if cov[i][i] < _MAX_VARIANCE:  # adding keeps the matrix definite, cutting would not
                cov[i][i] += _DRIFT_VARIANCE
        gain = [cov[i][0] * x[0] + cov[i][1] * x[1] + cov[i][2] * x[2] for i in range(3)]
        variance = max(0.0, x[0] * gain[0] + x[1] * gain[1] + x[2] * gain[2]) + _NOISE_VARIANCE
        bound = _MAX_SIGMAS * sqrt(variance)
        num_outliers = self._num_outliers
        if abs(error) <= bound:
            self._num_outliers = 0
        else:
            sign = 1 if error > 0 else -1
            self._num_outliers = num_outliers + sign if num_outliers * sign > 0 else sign
            error = sign * bound
        for i in range(3):
            factors[i] = max(factors[i] + gain[i] * error / variance, _MIN_FACTOR)
        self._cov = [[cov[i][j] - gain[i] * gain[j] / variance for j in range(3)] for i in range(3)]
        if abs(self._num_outliers) >= _MAX_OUTLIERS:
            self._start_from(self.parts)


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
        """Grant up to ``num_wanted`` tokens after ``start``; how many it grants.

        A rest is granted too if a step of its own would cost more and it is at most half of what is
        granted anyway; so ask for all that a sequence has left.
        """
        num_tokens = min(num_wanted, self.room(start=start))
        most = num_tokens + min(self._cost.overhead_tokens, num_tokens / 2)
        if 0 < num_tokens < num_wanted <= min(most, self._tokens):
            num_tokens = num_wanted
        if num_tokens > 0:
            self.num_granted += num_tokens
            self._tokens -= num_tokens
            self._floor = max(0, self._floor - num_tokens)
            if self._time_s != inf:
                _, b, c = self._cost.parts
                self._time_s -= b * num_tokens + c * count_pairs(start, num_tokens)
        return num_tokens
