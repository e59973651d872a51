"""What does this CBOR hold, when read the one way that every parser agrees on?  [RFC 8949]

The subset that a Nitro document needs: integers, byte and text strings, arrays, maps, booleans and
null; shortest lengths, no duplicate keys, every byte consumed. Tags, floats and chunked strings are
refused. AWS writes the outer map of a document with indefinite length, so maps alone may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from attestation.errors import MalformedEvidence

CborValue = (
    None | bool | int | bytes | str | tuple["CborValue", ...] | Mapping[int | str, "CborValue"]
)

MAX_BYTES = 32 * 1024  # a document has 4.5 KB; the largest fields together less than 16 KB
MAX_DEPTH = 3
MAX_ITEMS = 256  # values and keys together; a document has about 60
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_INDEFINITE = 31
_BREAK = 0xFF
_SIMPLE_VALUES = {20: False, 21: True, 22: None}


def decode(data: bytes, *, what: str, are_maps_indefinite: bool = False) -> CborValue:
    """The one item in ``data``; ``are_maps_indefinite`` allows maps of indefinite length too.

    Raises: MalformedEvidence: format, trailing_bytes.
    """
    if len(data) > MAX_BYTES:
        raise MalformedEvidence("format", f"{what}: {len(data)} bytes, at most {MAX_BYTES}")
    reader = _Reader(data=data, what=what, are_maps_indefinite=are_maps_indefinite)
    value = reader.read_item(MAX_DEPTH)
    if reader.offset != len(data):
        left = len(data) - reader.offset
        raise MalformedEvidence("trailing_bytes", f"{what}: {left} bytes after the end")
    return value


def encode_bytes(data: bytes) -> bytes:
    """A byte string of definite length."""
    return _encode_head(_BYTES, len(data)) + data


def encode_text(text: str) -> bytes:
    """A text string of definite length."""
    data = text.encode("utf-8")
    return _encode_head(_TEXT, len(data)) + data


def encode_array(items: tuple[bytes, ...]) -> bytes:
    """An array of items that are encoded already."""
    return _encode_head(_ARRAY, len(items)) + b"".join(items)


@dataclass(slots=True)
class _Reader:
    data: bytes
    what: str
    are_maps_indefinite: bool
    offset: int = 0
    items_left: int = field(default=MAX_ITEMS)

    def read_item(self, depth_left: int) -> CborValue:
        self.items_left -= 1
        if self.items_left < 0:
            raise self._malformed(f"more than {MAX_ITEMS} items")
        start = self._take(1)[0]
        major, info = start >> 5, start & 0x1F
        if major == _SIMPLE:
            if info not in _SIMPLE_VALUES:
                raise self._malformed("a float or unassigned simple value")
            return _SIMPLE_VALUES[info]
        if major == _TAG:
            raise self._malformed("a tag")
        if major == _MAP and info == _INDEFINITE and self.are_maps_indefinite:
            return self._read_map(None, depth_left)
        argument = self._read_argument(info)
        if major == _UNSIGNED:
            return argument
        if major == _NEGATIVE:
            return -1 - argument
        if major == _BYTES:
            return self._take(argument)
        if major == _TEXT:
            return self._decode_text(self._take(argument))
        if major == _ARRAY:
            return self._read_array(argument, depth_left)
        return self._read_map(argument, depth_left)

    def _read_array(self, count: int, depth_left: int) -> CborValue:
        self._enter(count, depth_left)
        return tuple(self.read_item(depth_left - 1) for _ in range(count))

    def _read_map(self, count: int | None, depth_left: int) -> CborValue:
        """``count`` pairs, or None: up to the break."""
        self._enter(0 if count is None else 2 * count, depth_left)
        pairs: dict[int | str, CborValue] = {}
        while not self._is_break() if count is None else len(pairs) < count:
            key = self.read_item(depth_left - 1)
            if isinstance(key, bool) or not isinstance(key, int | str):
                raise self._malformed("a key that is neither integer nor text")
            if key in pairs:
                raise self._malformed("a key that occurs twice")
            pairs[key] = self.read_item(depth_left - 1)
        return pairs

    def _enter(self, num_items: int, depth_left: int) -> None:
        if depth_left == 0:
            raise self._malformed("nested too deeply")
        if num_items > self.items_left:  # before anything is read or reserved for them
            raise self._malformed(f"more than {MAX_ITEMS} items")

    def _is_break(self) -> bool:
        if self.offset < len(self.data) and self.data[self.offset] == _BREAK:
            self.offset += 1
            return True
        return False

    def _read_argument(self, info: int) -> int:
        """The number behind an initial byte, in its shortest form.  [RFC 8949 sec. 4.2.1]"""
        if info < 24:
            return info
        if info > 27:
            raise self._malformed("an indefinite or reserved length")
        num_bytes = 1 << (info - 24)
        argument = int.from_bytes(self._take(num_bytes), "big")
        if argument < (24 if num_bytes == 1 else 1 << (4 * num_bytes)):
            raise self._malformed("a number that is not in its shortest form")
        return argument

    def _decode_text(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as err:
            raise self._malformed("text that is not UTF-8") from err

    def _take(self, num_bytes: int) -> bytes:
        end = self.offset + num_bytes
        if end > len(self.data):
            raise self._malformed("cut short")
        taken = self.data[self.offset : end]
        self.offset = end
        return taken

    def _malformed(self, problem: str) -> MalformedEvidence:
        return MalformedEvidence("format", f"{self.what}: {problem}")


def _encode_head(major: int, argument: int) -> bytes:
    for info, num_bytes in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 24:
            break
        if argument < 1 << (8 * num_bytes):
            return bytes([major << 5 | info]) + argument.to_bytes(num_bytes, "big")
    return bytes([major << 5 | argument])
