"""Plain torch: oracle and CPU path of ``swiglu``."""

import torch
from torch import Tensor

from runtime.models.config import Activation


def swiglu(gate_up: Tensor, activation: Activation = "silu") -> Tensor:
    """See ``runtime.kernels.swiglu.SwiGlu``."""
    gate, up = gate_up.chunk(2, dim=-1)
    if activation == "gelu_tanh":
        return torch.nn.functional.gelu(gate, approximate="tanh").mul_(up)
    return torch.nn.functional.silu(gate).mul_(up)
