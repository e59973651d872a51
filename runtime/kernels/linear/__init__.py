"""Linear: y = x W^T, with an optional addend for residual streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Linear(Protocol):
    """x: (T, I), weight: (O, I) row-major, add: (T, O) or None -> (T, O) in a new tensor."""

    def __call__(self, x: Tensor, weight: Tensor, add: Tensor | None = None) -> Tensor: ...
