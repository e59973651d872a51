"""What does the other side of a connection answer?  HTTP/1.1 responses, read strictly.

No I/O here: bytes go in, pieces of content come out, in pieces of any size. What could be read in
two ways is refused.  [RFC 9112]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_HEAD_BYTES: Final = 1 << 14  # of a head, and of trailer fields
MAX_LINE_BYTES: Final = 256  # of a chunk's size and its extensions
MAX_INFORMATIONAL: Final = 8

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD: Final = re.compile(
    rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*"
)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_NO_CONTENT: Final = frozenset({204, 304})


class MalformedResponse(Exception):
    """What came is no response of HTTP/1.1, or one that could be read in two ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Status and header; names are in lower case, the values of one name are joined by commas."""

    status: int
    fields: Mapping[str, str]


class ResponseReader:
    """Reads the one response to one request, which was neither HEAD nor CONNECT."""

    __slots__ = (
        "_can_go_on",
        "_is_after_data",
        "_is_chunked",
        "_is_in_trailers",
        "_left",
        "_num_informational",
        "_rest",
        "head",
        "is_complete",
    )

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.is_complete = False
        self._rest = b""  # bytes that are not enough for a step
        self._left: int | None = None  # content to come, of the chunk or whole; None: to the end
        self._is_chunked = False
        self._is_after_data = False  # of a chunk: its line end is to come
        self._is_in_trailers = False
        self._can_go_on = True
        self._num_informational = 0

    @property
    def may_follow(self) -> bool:
        """Whether the connection is good for another request."""
        return self.is_complete and self._can_go_on

    def feed(self, data: bytes) -> list[bytes]:
        """The content that `data` brings. Raises: MalformedResponse."""
        buffer = self._rest + data if self._rest else data
        pieces: list[bytes] = []
        at = 0
        while self.head is None:
            start, at = at, self._take_head(buffer, at)
            if start == at:
                self._rest = buffer[at:]
                return pieces
        if not self.is_complete:
            take = self._take_chunks if self._is_chunked else self._take_content
            at = take(buffer, at, pieces)
        self._rest = buffer[at:]
        if self.is_complete and self._rest:  # nobody asked for it
            self._can_go_on, self._rest = False, b""
        return pieces

    def finish(self) -> None:
        """The connection has ended. Raises: MalformedResponse where the response has not."""
        self._can_go_on = False
        if self.head is None or not (self.is_complete or self._left is None):
            raise MalformedResponse("the response is cut short")
        self.is_complete = True

    def _take_head(self, buffer: bytes, at: int) -> int:
        """Where what follows the head begins; `at` when it is not whole."""
        end = buffer.find(b"\r\n\r\n", at, at + MAX_HEAD_BYTES)
        if end < 0:
            if len(buffer) - at >= MAX_HEAD_BYTES:
                raise MalformedResponse("the head is too large")
            return at
        first, *lines = buffer[at:end].split(b"\r\n")
        status_line = _STATUS.fullmatch(first)
        if status_line is None:
            raise MalformedResponse("no status line")
        status, fields = int(status_line[2]), _fields(lines)
        if status < 200:
            self._num_informational += 1
            if status == 101 or self._num_informational > MAX_INFORMATIONAL:
                raise MalformedResponse("an informational response that nobody asked for")
        else:
            self._begin(status, fields, is_old=status_line[1] == b"0")
        return end + 4

    def _begin(self, status: int, fields: Mapping[str, str], *, is_old: bool) -> None:
        """Which bytes are content?  [RFC 9112 sec. 6.3]"""
        coding, length = fields.get("transfer-encoding"), fields.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None or is_old:
                raise MalformedResponse("the length of the content is not certain")
            self._is_chunked, self._left = True, 0
        elif length is not None:
            if _LENGTH.fullmatch(length.encode("latin-1")) is None:
                raise MalformedResponse("the length of the content is not certain")
            self._left = int(length)
        if status in _NO_CONTENT:
            self._is_chunked, self._left = False, 0
        options = {option.strip() for option in fields.get("connection", "").lower().split(",")}
        self._can_go_on = not is_old and "close" not in options and self._left is not None
        self.is_complete = self._left == 0 and not self._is_chunked
        self.head = ResponseHead(status=status, fields=fields)

    def _take_content(self, buffer: bytes, at: int, pieces: list[bytes]) -> int:
        piece = buffer[at:] if self._left is None else buffer[at : at + self._left]
        if piece:
            pieces.append(piece)
        if self._left is not None:
            self._left -= len(piece)
            self.is_complete = self._left == 0
        return at + len(piece)

    def _take_chunks(self, buffer: bytes, at: int, pieces: list[bytes]) -> int:
        while not self._is_in_trailers:
            if self._left:
                piece = buffer[at : at + self._left]
                if not piece:
                    return at
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._is_after_data = True
                if self._left:
                    return at
            if self._is_after_data:
                if len(buffer) - at < 2:
                    return at
                if not buffer.startswith(b"\r\n", at):
                    raise MalformedResponse("a chunk has another length than it says")
                at += 2
                self._is_after_data = False
            end = buffer.find(b"\r\n", at, at + MAX_LINE_BYTES)
            if end < 0:
                if len(buffer) - at >= MAX_LINE_BYTES:
                    raise MalformedResponse("the line of a chunk's size is too long")
                return at
            size = _CHUNK_SIZE.fullmatch(buffer, at, end)
            if size is None:
                raise MalformedResponse("no size of a chunk")
            self._left = int(size[1], 16)
            self._is_in_trailers = self._left == 0
            at = end + 2
        return self._take_trailers(buffer, at)

    def _take_trailers(self, buffer: bytes, at: int) -> int:
        """They are read, for the next response comes after them, and mean nothing here."""
        if buffer.startswith(b"\r\n", at):
            self.is_complete = True
            return at + 2
        end = buffer.find(b"\r\n\r\n", at, at + MAX_HEAD_BYTES)
        if end < 0:
            if len(buffer) - at >= MAX_HEAD_BYTES:
                raise MalformedResponse("the trailer fields are too large")
            return at
        _fields(buffer[at:end].split(b"\r\n"))
        self.is_complete = True
        return end + 4


def _fields(lines: list[bytes]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise MalformedResponse("a header field is malformed")
        name, value = found[1].decode("ascii").lower(), found[2].decode("latin-1")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields
