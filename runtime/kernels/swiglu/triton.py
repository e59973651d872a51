"""GPU backend of ``swiglu``: one program per row and stretch of columns."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.models.config import Activation

_BLOCK = 1024


def swiglu(gate_up: Tensor, activation: Activation = "silu") -> Tensor:
    """See ``runtime.kernels.swiglu.SwiGlu``; rows of ``gate_up`` are contiguous."""
    num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((num_rows, width), dtype=gate_up.dtype, device=gate_up.device)
    if num_rows:
        grid = (num_rows, triton.cdiv(width, _BLOCK))
        _swiglu[grid](
            gate_up, out, gate_up.stride(0), width, GELU=activation == "gelu_tanh", BLOCK=_BLOCK
        )
    return out


@triton.jit
def _swiglu(gate_up_ptr, out_ptr, stride, width, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_up_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * stride + width + columns, mask=inside, other=0.0)
    if GELU:  # tanh(z) = 2 sigmoid(2 z) - 1, so (1 + tanh(z)) / 2 is a sigmoid too
        gate = gate * tl.sigmoid(2 * 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))
    else:
        gate = gate * tl.sigmoid(gate)
    y = gate * up.to(tl.float32)
    tl.store(out_ptr + row * width + columns, y.to(out_ptr.dtype.element_ty), mask=inside)
