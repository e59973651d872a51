"""How are mapped files let go when somebody may still look at them?"""

from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Self


class MappedFiles:
    """A context in which views of mapped files are valid; ``close`` is the subclass's."""

    def close(self) -> None:
        """Unmap the files. Raises: BufferError while views of them are alive."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # A failed call's frames may still hold views; the maps then go with the exception.
        with suppress(BufferError) if exc is not None else nullcontext():
            self.close()
