"""How fast does each pair of a head turn?  Rotary frequencies with every published scaling.

All in float64; the formulas are of [Su et al. 2021], [Chen et al. 2023] (linear),
[Peng et al. 2023] (YaRN), [Ding et al. 2024] (LongRoPE) and the Llama 3.1 release (llama3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log, pi, sqrt

import numpy as np
import numpy.typing as npt

from runtime.models.config import RopeTable
from runtime.weights.errors import MalformedModelError

Frequencies = npt.NDArray[np.float64]


def plain(theta: float, rotary_dim: int) -> RopeTable:
    """theta^(-2j / rotary_dim). Raises: MalformedModelError."""
    if theta < 1:
        raise MalformedModelError("the rotary base is less than 1")
    pairs = np.arange(0, rotary_dim, 2, dtype=np.float64)
    return RopeTable(inverse_frequencies=theta ** (-pairs / rotary_dim))


def still(rotary_dim: int) -> RopeTable:
    """Nothing turns: layers without positions."""
    return RopeTable(inverse_frequencies=np.zeros(rotary_dim // 2))


def divided(table: RopeTable, factors: float | Sequence[float] | Frequencies) -> RopeTable:
    """Linear scaling by one factor, or a factor for each pair (GGUF's rope_freqs tensor)."""
    divisors = np.asarray(factors, np.float64)
    if not np.isfinite(divisors).all() or (divisors <= 0).any():
        raise MalformedModelError("a rotary factor is not positive")
    if divisors.ndim and divisors.shape != table.inverse_frequencies.shape:
        raise MalformedModelError("the rotary factors do not fit the head")
    return RopeTable(
        inverse_frequencies=table.inverse_frequencies / divisors,
        attention_factor=table.attention_factor,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Slow pairs are slowed by ``factor``, fast ones stay, those between are mixed."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def apply(self, table: RopeTable) -> RopeTable:
        """Raises: MalformedModelError."""
        if self.high_freq_factor <= self.low_freq_factor:
            raise MalformedModelError("high_freq_factor is not above low_freq_factor")
        turns = self.original_context * table.inverse_frequencies / (2 * pi)
        width = self.high_freq_factor - self.low_freq_factor
        share = np.clip((turns - self.low_freq_factor) / width, 0, 1)
        scaled = table.inverse_frequencies * (share + (1 - share) / self.factor)
        return RopeTable(inverse_frequencies=scaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """``attention_factor`` None takes the paper's 0.1 ln(factor) + 1."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def apply(self, table: RopeTable, theta: float) -> RopeTable:
        num_pairs = len(table.inverse_frequencies)
        low, high = (
            self._pair(turns, theta, num_pairs) for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, 2 * num_pairs - 1)
        width = high - low if high != low else 0.001
        share = 1 - np.clip((np.arange(num_pairs) - low) / width, 0, 1)
        scaled = table.inverse_frequencies * (share + (1 - share) / self.factor)
        attention = self.attention_factor
        if attention is None:
            attention = 0.1 * log(self.factor) + 1 if self.factor > 1 else 1.0
        return RopeTable(inverse_frequencies=scaled, attention_factor=attention)

    def _pair(self, turns: float, theta: float, num_pairs: int) -> float:
        """Which pair makes ``turns`` turns within the original context."""
        if theta <= 1:
            raise MalformedModelError("YaRN needs a rotary base above 1")
        return num_pairs * log(self.original_context / (turns * 2 * pi)) / log(theta)


def longrope_attention_factor(context: int, original_context: int) -> float:
    """How much longer contexts sharpen attention; 1 when the context was not extended."""
    if context <= original_context or original_context < 2:
        return 1.0
    return sqrt(1 + log(context / original_context) / log(original_context))
