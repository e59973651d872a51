"""What is inside a protobuf message, without building objects for all of it?

[Protocol Buffers, Encoding].  A parsed message costs a hundred times its bytes when it consists of
empty parts; walking over it costs nothing, so that parts can be counted and measured first.
"""

from collections.abc import Iterator
from typing import Final

MAX_VARINT_BYTES: Final = 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class MalformedMessage(ValueError):
    """The bytes are no protobuf message; groups, which proto3 has not, count as that."""


def fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(field number, payload) of each field, in order; a field that has no length has no payload.

    The payloads share the memory of ``data``.  Raises: MalformedMessage.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise MalformedMessage("field number 0")
        num_bytes = 0
        if wire_type == _LENGTH:
            num_bytes, at = _varint(data, at)
        elif wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
        else:
            raise MalformedMessage(f"wire type {wire_type}")
        if at + num_bytes > end:
            raise MalformedMessage("a field ends after its message")
        yield number, data[at : at + num_bytes]
        at += num_bytes


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at ``at`` and the place after it."""
    value = 0
    for idx, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * idx)
        if byte < 0x80:
            return value, at + idx + 1
    raise MalformedMessage("a varint without end")
