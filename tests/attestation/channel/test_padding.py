"""Are padded lengths few, never short, and never far off?"""

from hypothesis import given
from hypothesis import strategies as st

from attestation.channel.padding import (
    MIN_PADDED_BYTES,
    pad_each_event,
    pad_events,
    padded_length,
    padding_for,
)


def test_published_padme_lengths() -> None:
    """Nikitin et al.: 9 leading bits stay of a length of 1 MB, and all is a multiple of 2^k."""
    assert padded_length(0) == padded_length(256) == MIN_PADDED_BYTES
    assert padded_length(257) == 272
    assert padded_length(1000) == 1024
    assert padded_length(1_000_000) == 1_015_808
    assert padded_length(1 << 20) == 1 << 20


@given(st.integers(min_value=0, max_value=1 << 30))
def test_padding_adds_at_most_an_eighth(num_bytes: int) -> None:
    padded = padded_length(num_bytes)
    assert padded == num_bytes + padding_for(num_bytes) == padded_length(padded)
    assert num_bytes <= padded <= max(MIN_PADDED_BYTES, num_bytes * 1.12)


def test_no_comment_falls_into_an_event() -> None:
    assert pad_events(b'data: {"a"') == b'data: {"a"'


def test_few_lengths() -> None:
    assert len({padded_length(n) for n in range(1 << 16)}) < 150


@given(st.integers(min_value=0, max_value=5000))
def test_events_fill_a_bucket_with_one_comment(num_bytes: int) -> None:
    events = (b"d" * num_bytes)[:-2] + b"\n\n" if num_bytes > 1 else b""
    num_bytes = len(events)
    padded = pad_events(events)
    assert padded.startswith(events)
    assert len(padded) == 256 or len(padded) % 512 == 0
    assert len(padded) <= max(512, num_bytes + 514)
    comment = padded[num_bytes:]
    assert not comment or (comment.startswith(b":") and comment.endswith(b"\n\n"))
    assert comment.count(b"\n") <= 2


def test_events_that_share_a_message_do_not_tell_how_long_they_are() -> None:
    """Together short ones would fit into a bucket that long ones do not."""
    short, long = b"data: a\n\n", b"data: " + b"b" * 130 + b"\n\n"
    assert len(pad_events(short * 2)) != len(pad_events(long * 2))
    assert len(pad_each_event(short * 2)) == len(pad_each_event(long * 2))
    padded = pad_each_event(short + long + b"data: rest")
    kept = [line for line in padded.splitlines() if line and not line.startswith(b":")]
    assert kept == [b"data: a", long.rstrip(), b"data: rest"]
    assert pad_each_event(b"") == b""
