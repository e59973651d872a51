"""GPU backend of ``linear_w4a16``: weights stay in 4 bits until they are in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.linear_w4a16 import GROUP, W4Matrix
from runtime.kernels.tiles import matmul_tiles


def linear_w4a16(x: Tensor, weight: W4Matrix) -> Tensor:
    """See ``runtime.kernels.linear_w4a16.LinearW4A16``; ``x`` is row-major."""
    num_rows, num_inputs = x.shape
    num_outputs = weight.quants.shape[0]
    out = torch.empty((num_rows, num_outputs), dtype=x.dtype, device=x.device)
    tiles = matmul_tiles(num_rows)
    if num_rows:
        grid = (triton.cdiv(num_rows, tiles.rows), triton.cdiv(num_outputs, tiles.columns))
        _linear_w4a16[grid](
            x, weight.quants, weight.scales, weight.minimums, out,
            num_rows, num_outputs, num_inputs, num_inputs // GROUP,
            ROWS=tiles.rows, COLUMNS=tiles.columns, HALF=GROUP // 2,
        )  # fmt: skip
    return out


@triton.jit
def _linear_w4a16(
    x_ptr, quants_ptr, scales_ptr, minimums_ptr, out_ptr,
    num_rows, num_outputs, num_inputs, num_groups,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    halves = tl.arange(0, HALF)
    is_row, is_column = rows < num_rows, columns < num_outputs
    x_rows = x_ptr + rows[:, None].to(tl.int64) * num_inputs + halves[None, :]
    quant_rows = quants_ptr + columns[:, None].to(tl.int64) * (num_inputs // 2) + halves[None, :]
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for group in range(num_groups):
        packed = tl.load(quant_rows + group * HALF, mask=is_column[:, None], other=0)
        at_group = columns.to(tl.int64) * num_groups + group
        scales = tl.load(scales_ptr + at_group, mask=is_column, other=0.0).to(tl.float32)
        minimums = tl.load(minimums_ptr + at_group, mask=is_column, other=0.0).to(tl.float32)
        low = (packed & 15).to(tl.float32) * scales[:, None] + minimums[:, None]
        high = (packed >> 4).to(tl.float32) * scales[:, None] + minimums[:, None]
        first = x_rows + group * 2 * HALF
        x_low = tl.load(first, mask=is_row[:, None], other=0.0)
        x_high = tl.load(first + HALF, mask=is_row[:, None], other=0.0)
        sums = tl.dot(x_low, tl.trans(low.to(x_low.dtype)), sums)
        sums = tl.dot(x_high, tl.trans(high.to(x_high.dtype)), sums)
    tl.store(
        out_ptr + rows[:, None].to(tl.int64) * num_outputs + columns[None, :],
        sums.to(out_ptr.dtype.element_ty),
        mask=is_row[:, None] & is_column[None, :],
    )
