"""What is needed of whatever makes vectors of texts?  Importing this loads no torch."""

from collections.abc import Sequence
from typing import Protocol

from runtime.plan import Float32Array


class TextEmbedder(Protocol):
    """Makes vectors; may be called from any thread."""

    @property
    def num_dimensions(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    def embed(self, token_ids: Sequence[int]) -> Float32Array:
        """(num_dimensions,), of length one. Raises: PromptTooLong, InvalidPrompt."""
        ...
