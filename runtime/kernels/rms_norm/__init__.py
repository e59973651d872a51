"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight.  Reference and kernel change together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class RmsNorm(Protocol):
    """x: (..., I), weight: (I,) -> the shape of x, new; at least float32 inside, x.dtype out."""

    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...
