"""How long should a message look?  Lengths from a coarse set, so that they say little of the text.

A whole message is padded to a Padme length: the leading bits of its length stay, the others become
zero, so at most 12 % is added and log log n bits are told  [Nikitin et al., PETS 2019, sec. 4]. A
stream's chunks, whose lengths would spell out its tokens, are padded to one of few buckets with
comment lines, which every reader of server-sent events skips  [WHATWG HTML, sec. 9.2.6].
"""

from typing import Final

MIN_PADDED_BYTES: Final = 256
STREAM_BUCKETS: Final = (256, 512)  # then multiples of the last

_SHORTEST_COMMENT: Final = len(b":\n\n")


def padded_length(num_bytes: int) -> int:
    """The Padme length for a message of ``num_bytes``, at least 256."""
    if num_bytes <= MIN_PADDED_BYTES:
        return MIN_PADDED_BYTES
    exponent = num_bytes.bit_length() - 1
    free_bits = exponent - exponent.bit_length()
    mask = (1 << free_bits) - 1
    return (num_bytes + mask) & ~mask


def padding_for(num_bytes: int) -> int:
    """How many bytes a message of ``num_bytes`` lacks to its padded length."""
    return padded_length(num_bytes) - num_bytes


def pad_events(events: bytes) -> bytes:
    """Whole server-sent events and, behind them, a comment that fills the next bucket.

    No events give a comment alone, as long as the smallest bucket. What ends within an event is
    left as it is, since a comment would fall into it.
    """
    if events and not events.endswith(b"\n\n"):
        return events
    room = _bucket_for(len(events)) - len(events)
    if 0 < room < _SHORTEST_COMMENT:
        room = _bucket_for(len(events) + _SHORTEST_COMMENT) - len(events)
    return events + b":" + b"." * (room - _SHORTEST_COMMENT) + b"\n\n" if room else events


def pad_each_event(events: bytes) -> bytes:
    """Whole server-sent events, each padded by itself.

    Where several share a message, the bucket of their sum would tell whether they are long.
    """
    *whole, rest = events.split(b"\n\n")
    return b"".join([*(pad_events(event + b"\n\n") for event in whole), rest])


def _bucket_for(num_bytes: int) -> int:
    for bucket in STREAM_BUCKETS:
        if num_bytes <= bucket:
            return bucket
    last = STREAM_BUCKETS[-1]
    return -(-num_bytes // last) * last
