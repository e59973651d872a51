"""Which bytes of a message were read as what?  A reader that misses none.

Bytes are consumed front to back by name; asking beyond the end is the format error. With a list for
``fields`` the reader also writes down what it read.
"""

from dataclasses import dataclass

from attestation.errors import MalformedEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One named stretch of a message; ``value`` is a number, text or hex, for people."""

    name: str
    offset: int
    size_bytes: int
    value: str


class Reader:
    """Reads ``data`` from ``offset`` to ``end``; integers are little-endian."""

    __slots__ = ("_data", "_end", "_fields", "_what", "offset")

    def __init__(
        self,
        data: bytes,
        *,
        what: str,
        fields: list[Field] | None = None,
        offset: int = 0,
        end: int | None = None,
    ) -> None:
        self._data = data
        self._end = len(data) if end is None else end
        self._fields = fields
        self._what = what
        self.offset = offset

    @property
    def num_unread(self) -> int:
        """How many bytes are left."""
        return self._end - self.offset

    def take(self, num_bytes: int, name: str, *, is_text: bool = False) -> bytes:
        """The next ``num_bytes``; ``is_text`` is for how they are shown only.

        Raises: MalformedEvidence("format").
        """
        chunk = self._advance(num_bytes)
        text = chunk.rstrip(b"\0").decode("ascii", "replace") if is_text else chunk.hex()
        self._note(name, chunk, text if text.isprintable() else chunk.hex())
        return chunk

    def uint(self, num_bytes: int, name: str) -> int:
        """The next unsigned integer.  Raises: MalformedEvidence("format")."""
        chunk = self._advance(num_bytes)
        value = int.from_bytes(chunk, "little")
        self._note(name, chunk, str(value))
        return value

    def expect(self, num_bytes: int, name: str, want: int) -> None:
        """An unsigned integer that has one right value.  Raises: MalformedEvidence("format")."""
        if (got := self.uint(num_bytes, name)) != want:
            raise MalformedEvidence("format", f"{self._what}: {name} is {got:#x}, want {want:#x}")

    def part(self, num_bytes: int, what: str) -> "Reader":
        """A reader of the next ``num_bytes``, which this one then has consumed."""
        start = self.offset
        self._advance(num_bytes)
        return Reader(
            self._data,
            what=f"{self._what} {what}",
            fields=self._fields,
            offset=start,
            end=self.offset,
        )

    def _advance(self, num_bytes: int) -> bytes:
        start, end = self.offset, self.offset + num_bytes
        if end > self._end:
            raise MalformedEvidence(
                "format", f"{self._what}: ends {end - self._end} bytes too early"
            )
        self.offset = end
        return self._data[start:end]

    def _note(self, name: str, chunk: bytes, value: str) -> None:
        if self._fields is not None:
            start = self.offset - len(chunk)
            field = Field(name=name, offset=start, size_bytes=len(chunk), value=value)
            self._fields.append(field)
