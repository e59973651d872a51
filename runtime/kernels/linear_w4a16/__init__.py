"""Linear layer with 4-bit weights: y = x W^T, W = quants * scale + minimum per group of 32.

The information of GGUF's Q4_0, Q4_1 and Q4_K. Of each group, byte i holds input i in its low and
input i + 16 in its high half, as GGUF's blocks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class W4Matrix:
    """(O, I) in 4 bits: quants (O, I / 2) uint8, scales and minimums (O, I / 32) float16."""

    quants: Tensor
    scales: Tensor
    minimums: Tensor


class LinearW4A16(Protocol):
    """x: (T, I) float16, bfloat16 or float32 -> (T, O) of x's dtype; sums in float32."""

    def __call__(self, x: Tensor, weight: W4Matrix) -> Tensor: ...
