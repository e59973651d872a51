"""Has this sealed request been seen before?  A bounded memory of (key id, enc).

A dated request needs remembering only until its date falls out of the window, because then the
date check refuses it; an undated one until its key is gone, which is as long as this process
lives. When the memory is full, new requests are refused, never old ones forgotten.
"""

import heapq
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, NewType

from gateway.problems import GatewayError

DATE_WINDOW: Final = timedelta(seconds=300)
MAX_REMEMBERED: Final = 1 << 18  # 20 MB; 436 requests/s for the longest term of 600 s

RequestName = NewType("RequestName", tuple[int, bytes])


@dataclass(slots=True)
class ReplayGuard:
    """Remembers request names; one per worker process."""

    max_remembered: int = MAX_REMEMBERED
    _seen: set[RequestName] = field(default_factory=set, repr=False)
    _ends: list[tuple[datetime, RequestName]] = field(default_factory=list, repr=False)

    def require_new(self, name: RequestName, *, date: datetime | None, now: datetime) -> None:
        """Raises: GatewayError `date_outside_window`, `replay_detected`, `overloaded`."""
        if date is not None and abs(now - date) > DATE_WINDOW:
            raise GatewayError("date_outside_window", "The sealed request's date is not current.")
        while self._ends and self._ends[0][0] < now:
            self._seen.discard(heapq.heappop(self._ends)[1])
        if name in self._seen:
            raise GatewayError("replay_detected", "This sealed request was sent before.")
        if len(self._seen) >= self.max_remembered:
            raise GatewayError("overloaded", "Too many recent requests to tell replays apart.")
        self._seen.add(name)
        if date is not None:
            heapq.heappush(self._ends, (date + DATE_WINDOW, name))


def parse_date(value: str) -> datetime:
    """An HTTP date.  Raises: GatewayError `date_outside_window` when it is none."""
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        raise GatewayError(
            "date_outside_window", "The sealed request's date is malformed."
        ) from None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
