"""Does the bucket let through what a bucket should, never more, and lose nothing?"""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gateway.gcra import Rate, correct, remaining, take, wait_ns

limits = st.integers(1, 1000)
steps = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 40)), max_size=60)
PERIOD_NS = 10_000


class Bucket:
    """The oracle: a bucket of water, in exact numbers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.level = Fraction(limit)
        self.at_ns = 0

    def flow_to(self, now_ns: int) -> None:
        made = Fraction((now_ns - self.at_ns) * self.limit, PERIOD_NS)
        self.level, self.at_ns = min(self.level + made, Fraction(self.limit)), now_ns


@given(limits, steps)
def test_it_admits_what_a_bucket_of_water_would(
    limit: int, arrivals: list[tuple[int, int]]
) -> None:
    """But for the rounding up of each taking to a whole nanosecond."""
    rate, full_ns, now_ns = Rate(limit=limit, period_ns=PERIOD_NS), 0, 0
    bucket, num_taken = Bucket(limit), 0
    for gap_ns, units in arrivals:
        now_ns += gap_ns
        bucket.flow_to(now_ns)
        rounding = Fraction(num_taken * limit, PERIOD_NS)
        left = remaining(rate, full_ns, now_ns=now_ns)
        full_units = max(bucket.level, Fraction(0))
        assert full_units - rounding - 1 < left <= full_units
        wanted = min(units, limit)
        if wait_ns(rate, full_ns, units, now_ns=now_ns) == 0:
            assert bucket.level >= wanted
            full_ns, num_taken = take(rate, full_ns, units, now_ns=now_ns), num_taken + 1
            bucket.level -= units
        else:
            assert bucket.level - rounding < wanted + Fraction(limit, PERIOD_NS)


@given(limits, st.integers(1, 3000), st.integers(0, 10**6), st.integers(0, 10**6))
def test_who_waits_as_told_is_admitted_and_not_a_moment_before(
    limit: int, units: int, full_ns: int, now_ns: int
) -> None:
    rate = Rate(limit=limit, period_ns=PERIOD_NS)
    wait = wait_ns(rate, full_ns, units, now_ns=now_ns)
    assert wait_ns(rate, full_ns, units, now_ns=now_ns + wait) == 0
    if wait:
        assert wait_ns(rate, full_ns, units, now_ns=now_ns + wait - 1) == 1


@given(limits, st.integers(0, 500), st.integers(0, 500), st.integers(0, 10**5))
def test_what_was_not_used_is_as_if_never_taken(
    limit: int, taken: int, used: int, full_ns: int
) -> None:
    rate = Rate(limit=limit, period_ns=PERIOD_NS)
    estimated = take(rate, full_ns, taken, now_ns=0)
    settled = correct(rate, estimated, taken=taken, used=used)
    assert settled == take(rate, full_ns, used, now_ns=0)


def test_a_refund_never_makes_more_than_a_full_bucket() -> None:
    rate = Rate(limit=10, period_ns=PERIOD_NS)
    full_ns = take(rate, 0, 10, now_ns=0)
    full_ns = correct(rate, full_ns, taken=10, used=0)  # a period later, when it is full again
    assert remaining(rate, full_ns, now_ns=PERIOD_NS) == 10
    full_ns = take(rate, full_ns, 10, now_ns=PERIOD_NS)
    assert remaining(rate, full_ns, now_ns=PERIOD_NS) == 0
