"""Plain torch: oracle and CPU path of ``linear``."""

import torch
from torch import Tensor

from runtime.kernels.linear import Linear, Weight
from runtime.kernels.linear_fp8 import Fp8Matrix
from runtime.kernels.linear_fp8.reference import linear_fp8, quantize_rows
from runtime.kernels.linear_w4a16 import W4Matrix
from runtime.kernels.linear_w4a16.reference import linear_w4a16


def create(*, num_threads: int) -> Linear:
    """torch has a pool of its own; ``num_threads`` is for backends that do not."""
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
