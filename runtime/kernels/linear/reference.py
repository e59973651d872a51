"""Plain torch: oracle and CPU path of ``linear``."""

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, add: Tensor | None = None) -> Tensor:
    """See ``runtime.kernels.linear.Linear``."""
    if add is None:
        return torch.mm(x, weight.t())
    return torch.addmm(add, x, weight.t())
