"""Which bins does a panel of the last ``window_s`` seconds have?  Whole steps, never too many."""

from dataclasses import dataclass
from typing import Final

from telemetry.metrics import NS_PER_S

MAX_BINS: Final = 120  # more is noise at a panel's width: most bins hold a handful of values
MIN_WINDOW_S: Final = 10
MAX_WINDOW_S: Final = 400 * 24 * 3600
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 172_800, 345_600),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Half-open time range [from_ns, to_ns) in unix ns, cut into bins of ``step_ns``."""

    from_ns: int
    to_ns: int
    step_ns: int

    @property
    def num_bins(self) -> int:
        """Number of bins, at most MAX_BINS."""
        return (self.to_ns - self.from_ns) // self.step_ns

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return (self.to_ns - self.from_ns) / NS_PER_S


def bin_window(*, until_ns: int, window_s: int) -> Window:
    """The last ``window_s`` seconds before ``until_ns``, rounded outwards to whole bins.

    Raises: ValueError when ``window_s`` lies outside MIN_WINDOW_S..MAX_WINDOW_S.
    """
    if not MIN_WINDOW_S <= window_s <= MAX_WINDOW_S:
        raise ValueError(f"window_s: want {MIN_WINDOW_S}..{MAX_WINDOW_S}, got {window_s}")
    step_s = next(step for step in _STEPS_S if -(-window_s // step) <= MAX_BINS)
    step_ns = step_s * NS_PER_S
    to_ns = -(-until_ns // step_ns) * step_ns
    return Window(from_ns=to_ns - -(-window_s // step_s) * step_ns, to_ns=to_ns, step_ns=step_ns)
