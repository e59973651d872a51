"""Plain torch: oracle and CPU path of ``linear``."""

import torch
from torch import Tensor

from runtime.kernels.linear import Linear


def create(*, num_threads: int) -> Linear:
    """torch has a pool of its own; ``num_threads`` is for backends that do not."""
    del num_threads
    return linear


def linear(x: Tensor, weight: Tensor, add: Tensor | None = None) -> Tensor:
    """See ``runtime.kernels.linear.Linear``."""
    if add is None:
        return torch.mm(x, weight.t())
    return torch.addmm(add, x, weight.t())
