"""What do TTFT, ITL, TPOT, E2E and goodput mean?  One function each, used by every process.

All results are seconds.  A metric that a request does not define is None, never zero.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from telemetry.timeline import RequestTimeline

Origin = Literal["arrived", "dispatched"]

NS_PER_S = 1_000_000_000


def ttft_s(timeline: RequestTimeline, *, origin: Origin = "arrived") -> float | None:
    """Time to first token: first chunk with text, less the origin; None when no text came.

    From "dispatched" it is the service's part alone, without the time the request waited to be
    sent; show it beside the headline, never instead of it.
    """
    start_ns = _origin_ns(timeline, origin)
    if start_ns is None or not timeline.chunks:
        return None
    return (timeline.chunks[0][0] - start_ns) / NS_PER_S


def e2e_s(timeline: RequestTimeline, *, origin: Origin = "arrived") -> float | None:
    """End-to-end latency: end of the response, less the origin; None while it runs."""
    start_ns = _origin_ns(timeline, origin)
    if start_ns is None or timeline.ended_ns is None:
        return None
    return (timeline.ended_ns - start_ns) / NS_PER_S


def tpot_s(timeline: RequestTimeline) -> float | None:
    """Time per output token: (E2E - TTFT) / (output tokens - 1).

    None below two output tokens.  The two latencies share their origin, so it cancels out.
    """
    first_s, end_s = ttft_s(timeline), e2e_s(timeline)
    if first_s is None or end_s is None or timeline.output_tokens < 2:
        return None
    return (end_s - first_s) / (timeline.output_tokens - 1)


def itl_gaps_ns(timeline: RequestTimeline) -> list[int]:
    """Integer nanoseconds of each gap of ``itl_gaps_s``."""
    times = [at_ns for at_ns, _ in timeline.chunks]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def itl_gaps_s(timeline: RequestTimeline) -> list[float]:
    """Inter-token latency, per chunk: each gap between neighbouring chunks with text.

    The wait before the first chunk is TTFT and not in here.  Pool gaps over requests; a mean per
    request would hide the stalls.
    """
    return [gap_ns / NS_PER_S for gap_ns in itl_gaps_ns(timeline)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service-level objective of one request; a bound that is None is not asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def is_met(self, *, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None) -> bool:
        """Whether one successful request is good: every bound asked for is defined and met.

        TPOT of a one-token answer is undefined and passes: there is no second token to be late.
        """
        if self.ttft_s is not None and (ttft_s is None or ttft_s > self.ttft_s):
            return False
        if self.e2e_s is not None and (e2e_s is None or e2e_s > self.e2e_s):
            return False
        return self.tpot_s is None or tpot_s is None or tpot_s <= self.tpot_s


def goodput_rps(num_good: int, duration_s: float) -> float | None:
    """Goodput: good requests per second of the window in which requests were intended."""
    return num_good / duration_s if duration_s > 0 else None


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The q-quantile by nearest rank: the value of rank ceil(q * n); None of nothing.

    ``ordered`` is ascending.  It is always a value that occurred, never an interpolation.

    Raises: ValueError if q lies outside 0..1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile lies in 0..1, not {q}")
    return ordered[nearest_rank(q, len(ordered)) - 1] if ordered else None


def nearest_rank(q: float, count: int) -> int:
    """Rank, from 1, of the q-quantile of ``count`` values.

    Rounded first: 0.07 * 100 is 7.000000000000001 in floating point, and its rank is 7.
    """
    return max(1, math.ceil(round(q * count, 6)))


def _origin_ns(timeline: RequestTimeline, origin: Origin) -> int | None:
    return timeline.arrived_ns if origin == "arrived" else timeline.dispatched_ns
