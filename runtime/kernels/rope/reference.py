"""Plain torch: oracle and CPU path of ``rope``."""

import torch
from torch import Tensor

from runtime.models.config import RopeStyle


def rope(x: Tensor, rotations: Tensor, style: RopeStyle) -> Tensor:
    """See ``runtime.kernels.rope.Rope``."""
    rotary_dim = 2 * rotations.shape[-1]
    turned, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    if style == "half":
        turned = _half(turned, rotations)
    else:
        pairs = torch.view_as_complex(turned.reshape(*turned.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * rotations.unsqueeze(1)).flatten(-2)
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned


def _half(x: Tensor, rotations: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = rotations.real.unsqueeze(1), rotations.imag.unsqueeze(1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
