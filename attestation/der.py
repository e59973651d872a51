"""Which tag, length and value does this DER hold?  A strict reader for small extensions.  [X.690]

Definite, minimal lengths of at most two length bytes; low tag numbers only; every byte consumed.
"""

from typing import NamedTuple

from attestation.errors import MalformedEvidence

BOOLEAN = 0x01
INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
ENUMERATED = 0x0A
SEQUENCE = 0x30
MAX_ITEMS = 64


class Element(NamedTuple):
    """One tag-length-value; ``value`` excludes tag and length."""

    tag: int
    value: bytes


def read_all(data: bytes) -> tuple[Element, ...]:
    """The elements that fill ``data`` exactly.  Raises: MalformedEvidence("format")."""
    return tuple([Element(tag, value) for tag, value in _read(data)])


def read_one(data: bytes, tag: int) -> bytes:
    """The value of the single element in ``data``.  Raises: MalformedEvidence("format")."""
    elements = read_all(data)
    if len(elements) != 1:
        raise MalformedEvidence("format", f"DER: {len(elements)} elements, want 1")
    return require_tag(elements[0], tag)


def require_tag(element: tuple[int, bytes], tag: int) -> bytes:
    """The value of an element, of which tag and value are given, when its tag is ``tag``."""
    got, value = element
    if got != tag:
        raise MalformedEvidence("format", f"DER: tag {got:#x}, want {tag:#x}")
    return value


def unsigned(value: bytes, *, maximum: int) -> int:
    """A non-negative INTEGER or ENUMERATED value in its shortest form."""
    if not value or value[0] & 0x80 or (len(value) > 1 and value[0] == 0 and value[1] < 0x80):
        raise MalformedEvidence("format", "DER: not a minimal non-negative integer")
    number = int.from_bytes(value, "big")
    if number > maximum:
        raise MalformedEvidence("format", f"DER: integer above {maximum}")
    return number


def pairs(sequence: bytes) -> dict[bytes, tuple[int, bytes]]:
    """SEQUENCE OF SEQUENCE { OID, value } as a map from raw OID to tag and value; none twice."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for tag, item in _read(sequence):
        members = _read(item)
        if tag != SEQUENCE or len(members) != 2 or members[0][0] != OBJECT_IDENTIFIER:
            raise MalformedEvidence("format", "DER: not a sequence of OID and value")
        (_, oid), member = members
        if oid in found:
            raise MalformedEvidence("format", "DER: an OID occurs twice")
        found[oid] = member
    return found


def content_start(data: bytes, start: int) -> int:
    """Where the value of the element at ``start`` begins, in DER that is known to be sound."""
    first = data[start + 1]
    return start + 2 if first < 0x80 else start + 2 + (first & 0x7F)


def element_end(data: bytes, start: int) -> int:
    """Where the element at ``start`` ends, in DER that is known to be sound; of any length."""
    body = content_start(data, start)
    first = data[start + 1]
    return body + (first if first < 0x80 else int.from_bytes(data[start + 2 : body], "big"))


def element_ends(data: bytes, start: int, count: int) -> list[int]:
    """Where each of ``count`` elements from ``start`` on ends, in DER that is known to be sound."""
    ends = []
    for _ in range(count):
        first = data[start + 1]
        start = start + 2 + first if first < 0x80 else element_end(data, start)
        ends.append(start)
    return ends


def _read(data: bytes) -> list[tuple[int, bytes]]:
    """Tags and values of the elements that fill ``data`` exactly.

    Short headers, nearly all of them, are read in place: a PCK certificate has eighty.
    """
    elements: list[tuple[int, bytes]] = []
    offset, end = 0, len(data)
    while offset < end:
        if len(elements) == MAX_ITEMS:
            raise MalformedEvidence("format", f"DER: more than {MAX_ITEMS} elements")
        tag, start = data[offset], offset + 2
        if start > end or tag & 0x1F == 0x1F or (length := data[offset + 1]) >= 0x80:
            start, length = _header(data, offset)
        offset = start + length
        if offset > end:
            raise MalformedEvidence("format", "DER: element ends beyond its container")
        elements.append((tag, data[start:offset]))
    return elements


def _header(data: bytes, offset: int) -> tuple[int, int]:
    """(start of the value, its length) of the element at ``offset``."""
    if offset + 2 > len(data) or data[offset] & 0x1F == 0x1F:
        raise MalformedEvidence("format", "DER: truncated header or high tag number")
    first = data[offset + 1]
    if first < 0x80:
        return offset + 2, first
    num_length_bytes = first & 0x7F
    start = offset + 2 + num_length_bytes
    if num_length_bytes not in (1, 2) or start > len(data):
        raise MalformedEvidence("format", "DER: length is indefinite, too long or truncated")
    length = int.from_bytes(data[offset + 2 : start], "big")
    if length < (0x80 if num_length_bytes == 1 else 0x100):
        raise MalformedEvidence("format", "DER: length is not minimal")
    return start, length
