"""Has this sealed request been seen before?  A bounded memory of (key id, enc).

A dated request needs remembering only until its date falls out of the window, because then the
date check refuses it; an undated one until its key is erased, because then it does not open. When
the memory is full, new requests are refused, never old ones forgotten.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from gateway.problems import GatewayError

DATE_WINDOW: Final = timedelta(seconds=300)
MAX_REMEMBERED: Final = 1 << 18  # 20 MB; 290 requests/s for 900 s, the longest life of a key


class RequestName(NamedTuple):
    """What tells one sealed request from every other."""

    key_id: int
    enc: bytes


@dataclass(slots=True)
class ReplayGuard:
    """Remembers request names; one per process, since its keys are its own."""

    max_remembered: int = MAX_REMEMBERED
    _seen: defaultdict[int, set[bytes]] = field(
        default_factory=lambda: defaultdict(set), repr=False
    )
    _ends: list[tuple[datetime, RequestName]] = field(default_factory=list, repr=False)

    def require_new(self, name: RequestName, *, date: datetime | None, now: datetime) -> None:
        """Raises: GatewayError `date_outside_window`, `replay_detected`, `overloaded`."""
        if date is not None and abs(now - date) > DATE_WINDOW:
            raise GatewayError("date_outside_window", "The sealed request's date is not current.")
        while self._ends and self._ends[0][0] < now:
            ended = heapq.heappop(self._ends)[1]
            self._seen.get(ended.key_id, set()).discard(ended.enc)
        if name.enc in self._seen[name.key_id]:
            raise GatewayError("replay_detected", "This sealed request was sent before.")
        if sum(map(len, self._seen.values())) >= self.max_remembered:
            raise GatewayError("overloaded", "Too many recent requests to tell replays apart.")
        self._seen[name.key_id].add(name.enc)
        if date is not None:
            heapq.heappush(self._ends, (date + DATE_WINDOW, name))

    def forget(self, name: RequestName) -> None:
        """The request ran nothing, so a replay of it can do no harm."""
        self._seen.get(name.key_id, set()).discard(name.enc)
        self._forget_ends()

    def forget_key(self, key_id: int) -> None:
        """The key is erased: nothing sealed to it opens again."""
        self._seen.pop(key_id, None)
        self._forget_ends()

    def _forget_ends(self) -> None:
        """The ends of what was forgotten before its time must not add up."""
        if len(self._ends) > 2 * self.max_remembered:
            seen = self._seen
            self._ends = [end for end in self._ends if end[1].enc in seen.get(end[1].key_id, ())]
            heapq.heapify(self._ends)


def parse_date(value: str) -> datetime:
    """An HTTP date.  Raises: GatewayError `date_outside_window` when it is none."""
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        raise GatewayError(
            "date_outside_window", "The sealed request's date is malformed."
        ) from None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
