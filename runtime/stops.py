"""Has the text reached a stop string, and how much of it is safe to send?

The text arrives in pieces of any size; the answer does not depend on where they were cut. The stop
string that is complete first wins, the longest of those if several are; neither it nor anything
after it is ever emitted.
"""

from collections.abc import Sequence


class StopChecker:
    """Passes text through, holding back a tail that may turn out to begin a stop string."""

    __slots__ = ("_held", "_stops", "is_stopped")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """Text that may be emitted now; nothing once stopped."""
        if self.is_stopped:
            return ""
        text = self._held + text
        matches = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if matches:
            self.is_stopped = True
            self._held = ""
            return text[: min(matches)[1]]
        num_held = self._num_held_chars(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """The held-back tail, when no more text will come."""
        held, self._held = self._held, ""
        return held

    def _num_held_chars(self, text: str) -> int:
        """Length of the longest tail that is a proper prefix of some stop string."""
        longest = min(len(text), max((len(stop) for stop in self._stops), default=1) - 1)
        for num_chars in range(longest, 0, -1):
            if any(stop.startswith(text[-num_chars:]) for stop in self._stops):
                return num_chars
        return 0
