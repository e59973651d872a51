"""Does the file hold exactly the tensors that an architecture asks for?

A loader takes tensors by name and shape; what is missing, misshapen or left over is an error, so
that a file with more in it than we compute is refused instead of half used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import TensorMismatchError
from runtime.weights.gguf import GgufFile
from runtime.weights.quant import TensorType

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawTensor:
    """A tensor as the file stores it: packed blocks, row after row.

    ``shape`` is row-major in items; ``data`` is a read-only view of the mapped file, (bytes,)
    uint8, valid while the file is open.
    """

    type: TensorType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    def dequantize(self) -> Floats:
        """float32 of ``shape`` in a new array."""
        return self.type.dequantize(self.data).reshape(self.shape)


class TensorSource:
    """Hands out each tensor of one file once: packed, or as float32 that the caller owns."""

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
        return self.raw(name, shape).dequantize()

    def raw(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        """The tensor, packed. Raises: TensorMismatchError."""
        info = self._left.pop(name, None)
        if info is None or info.shape != shape:
            got = "nothing" if info is None else str(info.shape)
            raise TensorMismatchError(f"{name}: want {shape}, got {got}")
        self._taken_bytes += info.num_bytes
        self._on_progress(self._taken_bytes / self._total_bytes)
        return RawTensor(type=info.type, shape=info.shape, data=self._file.raw(info))

    def take_rows(self, parts: Sequence[tuple[str, int]], columns: int) -> Floats:
        """Several (name, rows) matrices of equal width as one, so that one product does for all."""
        return np.concatenate([self.take(name, (rows, columns)) for name, rows in parts])

    def finish(self) -> None:
        """Raises: TensorMismatchError when a tensor was not asked for."""
        if self._left:
            name = min(self._left)
            raise TensorMismatchError(f"{len(self._left)} unexpected tensors, such as {name}")
