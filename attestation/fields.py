"""Which bytes of Evidence were read as what?  A walk by a layout that leaves no byte out."""

from dataclasses import dataclass, field

from attestation.errors import MalformedEvidence

Layout = tuple[tuple[str, int], ...]  # (name, bytes), one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One named stretch of bytes; ``value`` is a number, text or hex, for people."""

    name: str
    offset: int
    size_bytes: int
    value: str


@dataclass(slots=True)
class FieldWalk:
    """Goes through ``data`` front to back, writing down every field it passes."""

    data: bytes
    what: str
    fields: list[Field] = field(default_factory=list)
    offset: int = 0

    def take(self, name: str, num_bytes: int, *, value: str | None = None) -> bytes:
        """The next bytes, shown in hex unless ``value`` says it better.

        Raises: MalformedEvidence("format"): there are not as many.
        """
        end = self.offset + num_bytes
        if end > len(self.data):
            raise MalformedEvidence("format", f"{self.what}: ends inside {name}")
        chunk = self.data[self.offset : end]
        self.fields.append(
            Field(
                name=name,
                offset=self.offset,
                size_bytes=num_bytes,
                value=chunk.hex() if value is None else value,
            )
        )
        self.offset = end
        return chunk

    def uint(self, name: str, num_bytes: int) -> int:
        """The next little-endian number."""
        start, end = self.offset, self.offset + num_bytes
        number = int.from_bytes(self.data[start:end], "little")
        self.take(name, num_bytes, value=f"{number} ({number:#x})")
        return number

    def layout(self, prefix: str, layout: Layout) -> None:
        """Every field of a layout, named ``prefix.name``."""
        for name, num_bytes in layout:
            self.take(f"{prefix}.{name}", num_bytes)

    def rest(self, name: str) -> None:
        """What is left, when anything is."""
        if self.offset < len(self.data):
            self.take(name, len(self.data) - self.offset)
