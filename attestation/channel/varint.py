"""Variable-length integers of QUIC: how long is the next thing?  [RFC 9000 sec. 16]"""

MAX_VARINT = (1 << 62) - 1

_LENGTH_MASKS = {1: 0x3F, 2: 0x3FFF, 4: 0x3FFFFFFF, 8: MAX_VARINT}


def encode_varint(value: int) -> bytes:
    """The shortest encoding.

    Raises: ValueError when ``value`` is outside 0..2^62-1.
    """
    if value < 0:
        raise ValueError("a varint is not negative")
    if value < 0x40:
        return value.to_bytes(1, "big")
    if value < 0x4000:
        return (value | 0x4000).to_bytes(2, "big")
    if value < 0x40000000:
        return (value | 0x80000000).to_bytes(4, "big")
    if value <= MAX_VARINT:
        return (value | 0xC000000000000000).to_bytes(8, "big")
    raise ValueError("a varint is below 2^62")


def varint_length(first_byte: int) -> int:
    """How many bytes an encoding has, by its first byte: 1, 2, 4 or 8."""
    return 1 << (first_byte >> 6)


def parse_varint(data: bytes | bytearray, start: int = 0) -> tuple[int, int] | None:
    """(value, index after it), or None while ``data`` ends before the integer does.

    Longer encodings than necessary are accepted, as the RFC does.
    """
    if start >= len(data):
        return None
    length = varint_length(data[start])
    end = start + length
    if end > len(data):
        return None
    return int.from_bytes(data[start:end], "big") & _LENGTH_MASKS[length], end
