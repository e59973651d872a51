"""Does the file hold exactly the tensors that an architecture asks for?

A loader takes tensors by name and shape; what is missing, misshapen, not finite or left over is
an error, so that a file with more in it than we compute is refused instead of half used. Names are
GGUF's, whatever the file's own are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import MalformedModelError, TensorMismatchError
from runtime.weights.quant import TensorType
from runtime.weights.stored import StoredTensor

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawTensor:
    """A tensor as the file stores it: packed blocks, row after row.

    ``shape`` is row-major in items; ``data`` is (bytes,) uint8, usually a read-only view of the
    mapped file, valid while the file is open.
    """

    type: TensorType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    def dequantize(self) -> Floats:
        """float32 of ``shape`` in a new array."""
        return self.type.dequantize(self.data).reshape(self.shape)


class TensorSource:
    """Hands out each tensor of one model once: packed, or as float32 that the caller owns."""

    def __init__(
        self, tensors: Mapping[str, StoredTensor], *, on_progress: Callable[[float], None]
    ) -> None:
        """``on_progress`` hears the ratio of tensor bytes taken so far, 0..1."""
        self._left = dict(tensors)
        self._on_progress = on_progress
        self._total_bytes = sum(tensor.num_bytes for tensor in self._left.values())
        self._taken_bytes = 0

    def has(self, name: str) -> bool:
        """Whether ``name`` is there and was not taken yet."""
        return name in self._left

    def take(self, name: str, shape: tuple[int, ...]) -> Floats:
        """The tensor, dequantized. Raises: TensorMismatchError, MalformedModelError."""
        return self.raw(name, shape).dequantize()

    def raw(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        """The tensor, packed.

        Raises: TensorMismatchError; MalformedModelError for a scale that is not finite.
        """
        stored = self._left.pop(name, None)
        if stored is None or stored.shape != shape:
            got = "nothing" if stored is None else str(stored.shape)
            raise TensorMismatchError(f"{name}: want {shape}, got {got}")
        data = stored.read()
        if not stored.type.is_finite(data):
            raise MalformedModelError(f"{name} holds numbers that are not finite")
        self._taken_bytes += stored.num_bytes
        self._on_progress(self._taken_bytes / self._total_bytes)
        return RawTensor(type=stored.type, shape=shape, data=data)

    def finish(self) -> None:
        """Raises: TensorMismatchError when a tensor was not asked for."""
        if self._left:
            name = min(self._left)
            raise TensorMismatchError(f"{len(self._left)} unexpected tensors, such as {name}")
