"""How are server-sent events written and split?  The subset that OpenAI's API uses: `data:` lines.

[WHATWG HTML, sec. 9.2 Server-sent events]
"""

import json
from typing import Any, Final

MEDIA_TYPE: Final = "text/event-stream"
DONE: Final = b"data: [DONE]\n\n"
DONE_DATA: Final = b"[DONE]"
MAX_EVENT_BYTES: Final = 16 << 20  # one event of a peer; the last one may repeat all before it


class EventTooLargeError(ValueError):
    """A peer's event exceeds MAX_EVENT_BYTES."""


compact: Final = json.JSONEncoder(separators=(",", ":")).encode


def encode_json(value: Any) -> bytes:
    """One event whose data is compact JSON (JSON text holds no raw newline)."""
    return b"data: " + compact(value).encode() + b"\n\n"


def encode_named(name: str, value: Any) -> bytes:
    """One event with a name, which is ours and needs no escape."""
    return b"event: " + name.encode() + b"\n" + encode_json(value)


class EventSplitter:
    """Cuts a byte stream into whole events as soon as their blank line arrives."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._pending = bytearray()
        self._max_event_bytes = max_event_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Raw events, each with its closing blank line. Raises: EventTooLargeError."""
        if not self._pending:
            *events, rest = data.split(b"\n\n")
            if not rest:  # whole events, as most come
                return [event + b"\n\n" for event in events if event]
        is_ended = b"\n\n" in self._pending[-1:] + data  # else a long event is not searched again
        self._pending += data
        events = []
        if is_ended:
            *events, rest = bytes(self._pending).split(b"\n\n")
            self._pending = bytearray(rest)
        if len(self._pending) > self._max_event_bytes:
            raise EventTooLargeError(f"event exceeds {self._max_event_bytes} bytes")
        return [event + b"\n\n" for event in events if event]

    @property
    def has_partial_event(self) -> bool:
        return bool(self._pending.strip())


def event_data(event: bytes) -> bytes:
    """The joined `data:` lines of one raw event; empty for comments."""
    if event.find(b"\n") == len(event) - 2:  # one line, as most have
        if event.startswith(b"data: "):
            return event[6:-2]
        if event.startswith(b":"):
            return b""
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)
