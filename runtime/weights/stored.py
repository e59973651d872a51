"""How is one tensor stored, and how are parts or changes of it had?  Values, nothing read yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import TensorMismatchError
from runtime.weights.quant import TENSOR_TYPES, TensorType

_F32 = TENSOR_TYPES[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """``shape`` is row-major, rows are contiguous; ``read`` gives (num_bytes,) uint8.

    What ``read`` gives may be a view of a mapped file, which stays open until it is dropped.
    """

    type: TensorType
    shape: tuple[int, ...]
    num_bytes: int
    read: Callable[[], npt.NDArray[np.uint8]]

    def rows(self, first: int, end: int) -> "StoredTensor":
        """Rows ``first`` to ``end`` - 1 of the matrix."""
        row_bytes = self.num_bytes // self.shape[0]
        return replace(
            self,
            shape=(end - first, *self.shape[1:]),
            num_bytes=row_bytes * (end - first),
            read=lambda: self.read()[row_bytes * first : row_bytes * end],
        )

    def plus_one(self) -> "StoredTensor":
        """1 + the tensor, in float32: what Gemma's norms multiply by [gemma_pytorch]."""
        num_items = self.num_bytes // self.type.block_bytes * self.type.block_items
        return StoredTensor(
            type=_F32,
            shape=self.shape,
            num_bytes=4 * num_items,
            read=lambda: (self.type.dequantize(self.read()) + np.float32(1)).view(np.uint8),
        )


def split_rows(
    tensors: Mapping[str, StoredTensor], fused: str, parts: Sequence[tuple[str, int]]
) -> dict[str, StoredTensor]:
    """``tensors`` with ``fused`` replaced by its parts, (name, rows) from the first row on.

    Raises: TensorMismatchError when the rows do not add up or a part is there already.
    """
    split = dict(tensors)
    whole = split.pop(fused)
    if len(whole.shape) != 2 or whole.shape[0] != sum(rows for _, rows in parts):
        raise TensorMismatchError(f"{fused}: the parts do not add up to {whole.shape}")
    first = 0
    for name, rows in parts:
        if name in split:
            raise TensorMismatchError(f"{name} is there twice, alone and in {fused}")
        split[name] = whole.rows(first, first + rows)
        first += rows
    return split
