"""FP8 linear layer: y = (x * x_scales) (W * weight_scales)^T, products summed in float32.

Values are float8 e4m3 [Micikevicius et al. 2022, FP8 Formats for Deep Learning]. A row of zeros has
scale 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


MAX_E4M3 = 448.0  # the largest number of the format


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Matrix:
    """Rows of float8 e4m3 with a scale each: values (R, I) float8_e4m3fn, scales (R,) float32."""

    values: Tensor
    scales: Tensor


class LinearFp8(Protocol):
    """x: (T, I), weight: (O, I) -> (T, O) of ``dtype``."""

    def __call__(self, x: Fp8Matrix, weight: Fp8Matrix, dtype: torch.dtype) -> Tensor: ...
