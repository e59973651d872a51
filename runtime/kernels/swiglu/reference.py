"""Plain torch: oracle and CPU path of ``swiglu``."""

import torch
from torch import Tensor


def swiglu(gate_up: Tensor) -> Tensor:
    """See ``runtime.kernels.swiglu.SwiGlu``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate).mul_(up)
