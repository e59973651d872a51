"""GPU backend of ``rms_norm_quantize``: a row is read once and leaves as FP8."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.linear_fp8 import MAX_E4M3, Fp8Matrix
from runtime.kernels.rms_norm.triton import block_of


def rms_norm_quantize(x: Tensor, weight: Tensor, eps: float) -> Fp8Matrix:
    """See ``runtime.kernels.rms_norm_quantize.RmsNormQuantize``; rows of ``x`` are contiguous."""
    return _quantize(x, weight, eps)


def quantize_rows(rows: Tensor) -> Fp8Matrix:
    """(R, I) as ``runtime.kernels.linear_fp8.reference.quantize_rows`` does it, in one pass."""
    return _quantize(rows, None, 0.0)


def _quantize(x: Tensor, weight: Tensor | None, eps: float) -> Fp8Matrix:
    num_rows, width = x.shape
    values = torch.empty((num_rows, width), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    if num_rows:
        _rms_norm_quantize[(num_rows,)](
            x, x if weight is None else weight, values, scales, x.stride(0), width, eps, MAX_E4M3,
            NORM=weight is not None, BLOCK=block_of(width),
        )  # fmt: skip
    return Fp8Matrix(values=values, scales=scales)


@triton.jit
def _rms_norm_quantize(
    x_ptr, weight_ptr, values_ptr, scales_ptr, x_stride, width, eps, largest,
    NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    y = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        y = y * tl.rsqrt(tl.sum(y * y, axis=0) / width + eps) * weight
    peak = tl.max(tl.abs(y), axis=0)
    inverse = tl.where(peak > 0, largest / tl.where(peak > 0, peak, 1.0), 0.0)
    # The product may round to just above the largest number, whose successor is NaN.
    scaled = tl.minimum(tl.maximum(y * inverse, -largest), largest)
    tl.store(values_ptr + row * width + columns, scaled.to(tl.float8e4nv), mask=inside)
    tl.store(scales_ptr + row, peak / largest)
