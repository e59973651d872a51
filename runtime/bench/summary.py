"""What is the middle of these samples, and how far do they spread?"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Of ``n`` samples, in their own unit."""

    n: int
    median: float
    p10: float
    p90: float


def summarize(samples: Sequence[float]) -> Summary:
    """Raises: ValueError when there is no sample."""
    return Summary(
        n=len(samples),
        median=quantile(samples, 0.5),
        p10=quantile(samples, 0.1),
        p90=quantile(samples, 0.9),
    )


def quantile(samples: Sequence[float], q: float) -> float:
    """Linear between the closest ranks; NumPy's default, type 7 of [Hyndman & Fan 1996].

    Raises: ValueError when there is no sample, or unless 0 <= q <= 1.
    """
    if not samples or not 0 <= q <= 1:
        raise ValueError("a quantile needs samples and a ratio")
    ordered = sorted(samples)
    rank = (len(ordered) - 1) * q
    below = floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
