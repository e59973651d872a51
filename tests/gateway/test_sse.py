"""Are events cut where they end, however the bytes are split?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import sse


@given(st.lists(st.text(max_size=20), max_size=8), st.integers(1, 7))
def test_any_split_gives_the_same_events(texts: list[str], step: int) -> None:
    wire = b"".join(sse.encode_json({"t": text}) for text in texts) + sse.DONE
    splitter = sse.EventSplitter()
    events = [e for i in range(0, len(wire), step) for e in splitter.feed(wire[i : i + step])]
    assert b"".join(events) == wire
    assert sse.event_data(events[-1]) == sse.DONE_DATA
    assert not splitter.has_partial_event


@given(st.text("ad: \n", max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_any_bytes_give_the_same_events_whole_and_cut(text: str, cuts: list[int]) -> None:
    data, splitter = text.encode(), sse.EventSplitter()
    ends = [*sorted(cuts), len(data)]
    parts = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    events = [event for part in parts for event in splitter.feed(part)]
    *whole, rest = data.split(b"\n\n")
    assert events == [event + b"\n\n" for event in whole if event]
    assert splitter.has_partial_event == bool(rest.strip())


@given(st.lists(st.sampled_from(["data: a", "data:b", "data", "event: x", ": c", "data: ", " "])))
def test_the_data_of_an_event_is_all_its_data_lines(lines: list[str]) -> None:
    told = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    assert sse.event_data("\n".join([*lines, "", ""]).encode()) == "\n".join(told).encode()


def test_a_partial_event_is_noticed() -> None:
    splitter = sse.EventSplitter()
    assert splitter.feed(b"data: {") == []
    assert splitter.has_partial_event


def test_an_event_is_bounded() -> None:
    splitter = sse.EventSplitter(max_event_bytes=10)
    with pytest.raises(sse.EventTooLargeError):
        splitter.feed(b"data: 0123456789")


def test_an_event_may_hold_a_whole_answer() -> None:
    wire = sse.encode_json("x" * (2 << 20))
    splitter = sse.EventSplitter()
    pieces = [wire[start : start + 4096] for start in range(0, len(wire), 4096)]
    assert [event for piece in pieces for event in splitter.feed(piece)] == [wire]


def test_comments_carry_no_data() -> None:
    assert sse.event_data(b": hello\n\n") == b""
