"""GPU backend of ``rms_norm``: one program per row, statistics in float32."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See ``runtime.kernels.rms_norm.RmsNorm``."""
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if len(rows):
        _rms_norm[(len(rows),)](
            rows, weight, out, rows.stride(0), width, width, eps, BLOCK=block_of(width)
        )
    return out


def block_of(width: int) -> int:
    """The power of two that holds a row."""
    return int(triton.next_power_of_2(width))


@triton.jit
def _rms_norm(x_ptr, weight_ptr, out_ptr, x_stride, out_stride, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    y = (x * scale * weight).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * out_stride + columns, y, mask=inside)
