"""GPU backend of ``linear_fp8``: FP8 tensor cores, scales applied once to the sums."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.linear_fp8 import Fp8Matrix
from runtime.kernels.tiles import matmul_tiles


def linear_fp8(x: Fp8Matrix, weight: Fp8Matrix, dtype: torch.dtype) -> Tensor:
    """See ``runtime.kernels.linear_fp8.LinearFp8``; values are row-major."""
    num_rows, num_inputs = x.values.shape
    num_outputs = weight.values.shape[0]
    out = torch.empty((num_rows, num_outputs), dtype=dtype, device=x.values.device)
    tiles = matmul_tiles(num_rows)
    if num_rows:
        grid = (triton.cdiv(num_rows, tiles.rows), triton.cdiv(num_outputs, tiles.columns))
        _linear_fp8[grid](
            x.values, x.scales, weight.values, weight.scales, out,
            num_rows, num_outputs, num_inputs,
            ROWS=tiles.rows, COLUMNS=tiles.columns, INPUTS=tiles.inputs,
        )  # fmt: skip
    return out


@triton.jit
def _linear_fp8(
    x_ptr, x_scales_ptr, weight_ptr, weight_scales_ptr, out_ptr, num_rows, num_outputs, num_inputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = rows < num_rows, columns < num_outputs
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, num_inputs, INPUTS):
        inputs = start + tl.arange(0, INPUTS)
        is_input = inputs < num_inputs
        x = tl.load(
            x_ptr + rows[:, None].to(tl.int64) * num_inputs + inputs[None, :],
            mask=is_row[:, None] & is_input[None, :],
            other=0.0,
        )
        weight = tl.load(
            weight_ptr + columns[:, None].to(tl.int64) * num_inputs + inputs[None, :],
            mask=is_column[:, None] & is_input[None, :],
            other=0.0,
        )
        sums = tl.dot(x, tl.trans(weight), sums)
    x_scales = tl.load(x_scales_ptr + rows, mask=is_row, other=0.0)
    weight_scales = tl.load(weight_scales_ptr + columns, mask=is_column, other=0.0)
    y = sums * x_scales[:, None] * weight_scales[None, :]
    tl.store(
        out_ptr + rows[:, None].to(tl.int64) * num_outputs + columns[None, :],
        y.to(out_ptr.dtype.element_ty),
        mask=is_row[:, None] & is_column[None, :],
    )
