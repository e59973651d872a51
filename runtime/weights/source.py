"""Does the file hold exactly the tensors that an architecture asks for?

A loader takes tensors by name and shape; what is missing, misshapen or left over is an error, so
that a file with more in it than we compute is refused instead of half used.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import TensorMismatchError
from runtime.weights.gguf import GgufFile

Floats = npt.NDArray[np.float32]


class TensorSource:
    """Hands out each tensor of one file once, as float32 arrays that the caller owns."""

    def __init__(self, file: GgufFile, *, on_progress: Callable[[float], None]) -> None:
        """``on_progress`` hears the ratio of tensor bytes taken so far, 0..1."""
        self._file = file
        self._left = dict(file.tensors)
        self._on_progress = on_progress
        self._total_bytes = sum(info.num_bytes for info in self._left.values())
        self._taken_bytes = 0

    def has(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, shape: tuple[int, ...]) -> Floats:
        """The tensor, dequantized. Raises: TensorMismatchError."""
        info = self._left.pop(name, None)
        if info is None or info.shape != shape:
            got = "nothing" if info is None else str(info.shape)
            raise TensorMismatchError(f"{name}: want {shape}, got {got}")
        array = self._file.tensor(info)
        self._taken_bytes += info.num_bytes
        self._on_progress(self._taken_bytes / self._total_bytes)
        return array

    def take_rows(self, parts: Sequence[tuple[str, int]], columns: int) -> Floats:
        """Several (name, rows) matrices of equal width as one, so that one product does for all."""
        return np.concatenate([self.take(name, (rows, columns)) for name, rows in parts])

    def finish(self) -> None:
        """Raises: TensorMismatchError when a tensor was not asked for."""
        if self._left:
            name = min(self._left)
            raise TensorMismatchError(f"{len(self._left)} unexpected tensors, such as {name}")
