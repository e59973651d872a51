"""GPU backend of ``linear``: cuBLAS for dense weights, Triton for packed ones."""

import torch
from torch import Tensor

from runtime.kernels.linear import Linear, Weight
from runtime.kernels.linear_fp8 import Fp8Matrix
from runtime.kernels.linear_fp8.triton import linear_fp8
from runtime.kernels.linear_w4a16 import W4Matrix
from runtime.kernels.linear_w4a16.triton import linear_w4a16
from runtime.kernels.rms_norm_quantize.triton import quantize_rows


def create(*, num_threads: int) -> Linear:
    """A GPU has its own threads; ``num_threads`` is for backends with a pool."""
    del num_threads
    return linear


def linear(x: Tensor, weight: Weight, add: Tensor | None = None) -> Tensor:
    """See ``runtime.kernels.linear.Linear``."""
    if isinstance(weight, W4Matrix):
        y = linear_w4a16(x, weight)
    elif isinstance(weight, Fp8Matrix):
        y = linear_fp8(quantize_rows(x), weight, x.dtype)
    elif add is not None:
        return torch.addmm(add, x, weight.t())
    else:
        return torch.mm(x, weight.t())
    return y if add is None else y.add_(add)
