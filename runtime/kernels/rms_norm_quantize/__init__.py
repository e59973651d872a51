"""RMSNorm whose output goes straight to FP8, for the linear layer behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from runtime.kernels.linear_fp8 import Fp8Matrix

if TYPE_CHECKING:
    from torch import Tensor


class RmsNormQuantize(Protocol):
    """x: (T, I), weight: (I,) -> the normed rows, one scale each."""

    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Fp8Matrix: ...
