"""Which responses are read, and which are refused because they could be read in two ways?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1 import (
    MAX_HEAD_BYTES,
    MAX_INFORMATIONAL,
    MAX_LINE_BYTES,
    MalformedResponse,
    ResponseReader,
)

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(*parts: bytes) -> tuple[ResponseReader, bytes]:
    reader = ResponseReader()
    return reader, b"".join(piece for part in parts for piece in reader.feed(part))


def test_a_head() -> None:
    reader, _ = read(b"HTTP/1.1 404 Not Found\r\nX-A:  b \r\nx-a: c\r\nContent-Length: 0\r\n\r\n")
    assert reader.head is not None
    assert reader.head.status == 404
    assert reader.head.fields == {"x-a": "b, c", "content-length": "0"}
    assert reader.may_follow


def test_content_of_a_length() -> None:
    reader, content = read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", b"cd")
    assert (content, reader.is_complete) == (b"abcd", False)
    assert (reader.feed(b"e"), reader.may_follow) == ([b"e"], True)


def test_content_to_the_end_of_the_connection() -> None:
    reader, content = read(b"HTTP/1.1 200 OK\r\n\r\nab", b"c")
    assert (content, reader.is_complete) == (b"abc", False)
    reader.finish()
    assert (reader.is_complete, reader.may_follow) == (True, False)


def test_chunks_with_extensions_and_trailers() -> None:
    reader, content = read(CHUNKED + b"3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nx: y\r\n\r\n")
    assert (content, reader.may_follow) == (b"abc0123456789", True)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_chunks_cut_anywhere(contents: list[bytes], data: st.DataObject) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(content), content) for content in contents)
    stream = b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + CHUNKED + framed + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader, content = read(*parts)
    assert (content, reader.may_follow) == (b"".join(contents), True)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INFORMATIONAL + 1),
        b"HTTP/1.1 200 OK\r\na : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"x" * MAX_HEAD_BYTES,
        CHUNKED + b"0x3\r\nabc\r\n",
        CHUNKED + b"1_0\r\n",
        CHUNKED + b" 3\r\nabc\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"123456789\r\n",
        CHUNKED + b"3\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabcd\r\n",
        CHUNKED + b"3;" + b"a" * MAX_LINE_BYTES,
        CHUNKED + b"0\r\nno field\r\n\r\n",
        CHUNKED + b"0\r\n" + b"a: b\r\n" * MAX_HEAD_BYTES,
    ],
)
def test_what_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na",
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"0\r\n",
    ],
)
def test_what_is_cut_short(data: bytes) -> None:
    reader, _ = read(data)
    with pytest.raises(MalformedResponse):
        reader.finish()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        CHUNKED + b"0\r\n\r\nx",
    ],
    ids=["close", "old", "another response", "more than was said"],
)
def test_nothing_follows(data: bytes) -> None:
    reader, content = read(data)
    assert (content, reader.is_complete, reader.may_follow) == (b"", True, False)
