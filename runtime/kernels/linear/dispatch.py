"""Which product does a weight take?  Torch's own for dense ones, a backend's for packed ones."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.kernels.linear import Weight
from runtime.kernels.linear_fp8 import Fp8Matrix, LinearFp8
from runtime.kernels.linear_w4a16 import LinearW4A16, W4Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearByWeight:
    """See ``runtime.kernels.linear.Linear``; takes every kind of weight."""

    w4a16: LinearW4A16
    fp8: LinearFp8
    quantize_rows: Callable[[Tensor], Fp8Matrix]

    def __call__(self, x: Tensor, weight: Weight, add: Tensor | None = None) -> Tensor:
        if isinstance(weight, W4Matrix):
            y = self.w4a16(x, weight)
        elif isinstance(weight, Fp8Matrix):
            y = self.fp8(self.quantize_rows(x), weight, x.dtype)
        elif add is not None:
            return torch.addmm(add, x, weight.t())
        else:
            return torch.mm(x, weight.t())
        return y if add is None else y.add_(add)
