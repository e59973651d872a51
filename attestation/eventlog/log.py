"""What is an event log, once read?  What was measured, in order, and into which register.

A log proves nothing by itself: it explains registers, and only those of verified Evidence are worth
explaining.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Register = Literal["mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3"]

RTMRS: tuple[Register, ...] = ("rtmr0", "rtmr1", "rtmr2", "rtmr3")
DIGEST_BYTES = 48  # SHA-384, as every TDX register
MAX_LOG_BYTES = 4 * 1024 * 1024  # the CCEL area of a guest has 64 KiB to 1 MiB
MAX_EVENTS = 16 * 1024
MAX_DESCRIPTION_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One measurement.

    ``is_measured`` is False for what only informs. ``problem`` is what is wrong with what the log
    itself says of the event, empty when nothing is; ``description`` is short and printable.
    """

    register: Register
    event_type: str
    digest: bytes
    description: str
    is_measured: bool = True
    problem: str = ""


def replay(events: Iterable[Event]) -> dict[Register, bytes]:
    """Registers after all events; one that no event went into is not in the answer.

    register = SHA-384(register || digest), from zeros.  [Intel TDX module spec, TDG.MR.RTMR.EXTEND]
    """
    registers: dict[Register, bytes] = {}
    for event in events:
        if event.is_measured:
            before = registers.get(event.register, bytes(DIGEST_BYTES))
            registers[event.register] = hashlib.sha384(before + event.digest).digest()
    return registers


def printable(data: bytes) -> str:
    """Text, UTF-8 or UTF-16, when it is that from end to end, else the start of its hex; bounded.

    Control characters never come through: what is measured was chosen by whoever booted the guest.
    """
    kept = data[: 4 * MAX_DESCRIPTION_CHARS]
    for encoding in ("utf-8", "utf-16-le"):
        try:
            text = kept.decode(encoding).rstrip("\0")
        except UnicodeDecodeError:
            continue
        if text and text.isprintable():
            return clipped(text)
    return clipped(f"{len(data)} bytes {data[:16].hex()}") if data else ""


def clipped(text: str) -> str:
    """At most ``MAX_DESCRIPTION_CHARS``, with a mark where it was cut."""
    if len(text) <= MAX_DESCRIPTION_CHARS:
        return text
    return text[: MAX_DESCRIPTION_CHARS - 3] + "..."
