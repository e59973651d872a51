"""Binary HTTP's grammar: the parts that requests and responses share.  [RFC 9292 sec. 3]

One generator walks the grammar and stops wherever bytes are missing; a message may end early only
where RFC 9292 section 3.8 lets it: before its header, content or trailer, when the rest is empty.
"""

from collections.abc import Generator
from typing import Generic, TypeVar

from attestation.channel.bhttp.message import (
    DEFAULT_LIMITS,
    BhttpLimits,
    Fields,
    RequestHead,
    ResponseHead,
    is_connection_field,
    require_field,
)
from attestation.channel.errors import (
    BodyTooLarge,
    ChannelError,
    ChannelMisuse,
    MalformedInner,
    TruncatedInner,
)
from attestation.channel.varint import parse_varint, varint_length

Head = TypeVar("Head", RequestHead, ResponseHead)


class MessageParser(Generic[Head]):
    """Buffers, counts against the limits, and walks what ``_message`` says."""

    def __init__(
        self, *, limits: BhttpLimits = DEFAULT_LIMITS, drops_connection_fields: bool = False
    ) -> None:
        self.head: Head | None = None
        self._drops_connection_fields = drops_connection_fields
        self.trailers: Fields = ()
        self._limits = limits
        self._buffer = bytearray()
        self._start = 0  # read position in the buffer
        self._content: list[bytes] = []  # what the current feed has completed
        self._num_head_bytes = 0
        self._num_fields = 0
        self._num_content_bytes = 0
        self._has_ended = False  # the input, not the message
        self._steps = self._message()

    def require_head(self) -> Head:
        """The head, once it has arrived.

        Raises: TruncatedInner before that.
        """
        if self.head is None:
            raise TruncatedInner("binary HTTP: the head has not arrived")
        return self.head

    def feed(self, data: bytes) -> list[bytes]:
        """Content that ``data`` brings, in pieces as they arrive, none of them empty.

        Raises: MalformedInner; BodyTooLarge over a limit; RefusedTarget for CONNECT;
        ChannelMisuse after any of them or after ``finish``.
        """
        self._require_running()
        self._buffer += data
        try:
            next(self._steps)
        except ChannelError:
            self._has_ended = True
            raise
        del self._buffer[: self._start]
        self._start = 0
        content, self._content = self._content, []
        return content

    def finish(self) -> None:
        """The input has ended.

        Raises: TruncatedInner unless the message may end here; ChannelMisuse when called twice.
        """
        self._require_running()
        self._has_ended = True
        for _ in self._steps:  # a step that still lacks bytes will never have them
            raise TruncatedInner("binary HTTP: the message is cut short")

    def _require_running(self) -> None:
        if self._has_ended:
            raise ChannelMisuse("the message has ended or failed already")

    def _message(self) -> Generator[None, None, None]:
        raise NotImplementedError

    # The grammar's parts: each yields when it lacks bytes and returns what it read.

    def _is_at_end(self) -> Generator[None, None, bool]:
        """Whether the input ends exactly here."""
        while self._start >= len(self._buffer):
            if self._has_ended:
                return True
            yield
        return False

    def _varint(self) -> Generator[None, None, int]:
        while (parsed := parse_varint(self._buffer, self._start)) is None:
            yield
        value, self._start = parsed
        return value

    def _head_varint(self) -> Generator[None, None, int]:
        """A varint that counts against the head limit."""
        while self._start >= len(self._buffer):
            yield
        self._count_head(varint_length(self._buffer[self._start]))
        return (yield from self._varint())

    def _text(self, length: int) -> Generator[None, None, str]:
        # feed() cuts the buffer while this waits, so the end is counted anew each time.
        while (available := len(self._buffer) - self._start) < length:
            self._require_head_room(available)
            yield
        self._count_head(length)
        text = self._buffer[self._start : self._start + length].decode("latin-1")
        self._start += length
        return text

    def _sized_text(self) -> Generator[None, None, str]:
        return (yield from self._text((yield from self._head_varint())))

    def _fields(self, *, is_known: bool) -> Generator[None, None, Fields]:
        if (yield from self._is_at_end()):
            return ()
        if is_known:
            return (yield from self._known_fields())
        fields: list[tuple[str, str]] = []
        while name_length := (yield from self._head_varint()):
            name = yield from self._text(name_length)
            fields += self._checked_field(name, (yield from self._sized_text()))
        return tuple(fields)

    def _known_fields(self) -> Generator[None, None, Fields]:
        left = yield from self._head_varint()
        fields: list[tuple[str, str]] = []
        while left > 0:
            before = self._num_head_bytes
            name = yield from self._sized_text()
            fields += self._checked_field(name, (yield from self._sized_text()))
            left -= self._num_head_bytes - before
        if left:
            raise MalformedInner("binary HTTP: a field runs over its section")
        return tuple(fields)

    def _known_content(self) -> Generator[None, None, None]:
        if not (yield from self._is_at_end()):
            yield from self._take_content((yield from self._varint()))

    def _open_ended_content(self) -> Generator[None, None, None]:
        if (yield from self._is_at_end()):
            return
        while length := (yield from self._varint()):
            yield from self._take_content(length)

    def _take_content(self, length: int) -> Generator[None, None, None]:
        self._num_content_bytes += length
        if self._num_content_bytes > self._limits.max_content_bytes:
            raise BodyTooLarge(f"content: at most {self._limits.max_content_bytes} bytes")
        while length:
            piece = bytes(self._buffer[self._start : self._start + length])
            if piece:
                self._content.append(piece)
                self._start += len(piece)
                length -= len(piece)
            else:
                yield

    def _body(self, *, is_known: bool) -> Generator[None, None, None]:
        """Content, trailers and padding: the rest of the message."""
        if is_known:
            yield from self._known_content()
        else:
            yield from self._open_ended_content()
        self.trailers = yield from self._fields(is_known=is_known)
        while not (yield from self._is_at_end()):
            if self._buffer.count(0, self._start) != len(self._buffer) - self._start:
                raise MalformedInner("binary HTTP: padding is zeros")
            self._start = len(self._buffer)

    def _checked_field(self, name: str, value: str) -> Fields:
        """The field, or none when it is one that is dropped."""
        self._num_fields += 1
        if self._num_fields > self._limits.max_fields:
            raise MalformedInner(f"binary HTTP: at most {self._limits.max_fields} fields")
        if self._drops_connection_fields and is_connection_field(name, value):
            return ()
        require_field(name, value)
        return ((name, value),)

    def _count_head(self, num_bytes: int) -> None:
        self._require_head_room(num_bytes)
        self._num_head_bytes += num_bytes

    def _require_head_room(self, num_bytes: int) -> None:
        if self._num_head_bytes + num_bytes > self._limits.max_head_bytes:
            raise BodyTooLarge(f"head: at most {self._limits.max_head_bytes} bytes")
