"""Plain torch: oracle and CPU path of ``rope``."""

import torch
from torch import Tensor


def rope(x: Tensor, rotations: Tensor) -> Tensor:
    """See ``runtime.kernels.rope.Rope``."""
    pairs = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotations.unsqueeze(1)).flatten(-2)
