"""Linear: y = x W^T, with an optional addend for residual streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from runtime.kernels.linear_fp8 import Fp8Matrix
from runtime.kernels.linear_w4a16 import W4Matrix

if TYPE_CHECKING:
    from torch import Tensor

Weight: TypeAlias = "Tensor | W4Matrix | Fp8Matrix"  # (O, I), dense or packed


class Linear(Protocol):
    """x: (T, I), weight: (O, I) row-major, add: (T, O) or None -> (T, O) in a new tensor.

    A backend may refuse packed weights: a device packs only what its backend takes.
    """

    def __call__(self, x: Tensor, weight: Weight, add: Tensor | None = None) -> Tensor: ...
