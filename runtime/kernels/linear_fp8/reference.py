"""Plain torch: oracle of ``linear_fp8``, and how rows become FP8."""

import torch
from torch import Tensor

from runtime.kernels.linear_fp8 import MAX_E4M3, Fp8Matrix


def linear_fp8(x: Fp8Matrix, weight: Fp8Matrix, dtype: torch.dtype) -> Tensor:
    """See ``runtime.kernels.linear_fp8.LinearFp8``."""
    product = x.values.to(torch.float32) @ weight.values.to(torch.float32).t()
    return (product * x.scales.unsqueeze(1) * weight.scales).to(dtype)


def quantize_rows(rows: Tensor) -> Fp8Matrix:
    """(R, I), the largest magnitude of a row at the format's largest number."""
    wide = rows.to(torch.float32)
    largest = wide.abs().amax(-1)
    inverse = torch.where(largest > 0, MAX_E4M3 / largest, 0.0)
    values = (wide * inverse.unsqueeze(1)).to(torch.float8_e4m3fn)
    return Fp8Matrix(values=values, scales=largest / MAX_E4M3)
