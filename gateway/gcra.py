"""May this much be taken now, and if not, when?  The generic cell rate algorithm, as arithmetic.

A bucket of `limit` units refills evenly over a period. All of its state is one instant: when it
will be full again (the "theoretical arrival time" of [ITU-T I.371 annex A]). So an idle bucket
costs nothing, no clock is read here, and giving back is the same arithmetic as taking.
"""

from dataclasses import dataclass
from typing import Final

MINUTE_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most `limit` units at once, and `limit` in each period from then on; limit >= 1."""

    limit: int
    period_ns: int = MINUTE_NS

    def span_ns(self, units: int) -> int:
        """How long the bucket takes to make so many units, rounded up."""
        return -(-units * self.period_ns // self.limit)


def wait_ns(rate: Rate, full_ns: int, units: int, *, now_ns: int) -> int:
    """0 when `units` can be taken now, else for how long they cannot.

    More than the whole bucket waits until it is full; taking it then leaves a debt.
    """
    ahead_ns = max(full_ns - now_ns, 0)
    return max(ahead_ns + rate.span_ns(min(units, rate.limit)) - rate.period_ns, 0)


def take(rate: Rate, full_ns: int, units: int, *, now_ns: int) -> int:
    """When the bucket is full again once `units` are gone."""
    return max(full_ns, now_ns) + rate.span_ns(units)


def correct(rate: Rate, full_ns: int, *, taken: int, used: int) -> int:
    """The same, once it is known that it was `used` and not what was `taken`.

    What time has already refilled cannot be given back again: a bucket is never more than full.
    """
    return full_ns + rate.span_ns(used) - rate.span_ns(taken)


def remaining(rate: Rate, full_ns: int, *, now_ns: int) -> int:
    """Whole units that can be taken now."""
    ahead_ns = max(full_ns - now_ns, 0)
    return max((rate.period_ns - ahead_ns) * rate.limit // rate.period_ns, 0)
