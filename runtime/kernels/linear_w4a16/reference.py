"""Plain torch: oracle of ``linear_w4a16``."""

import torch
from torch import Tensor

from runtime.kernels.linear_w4a16 import GROUP, W4Matrix


def linear_w4a16(x: Tensor, weight: W4Matrix) -> Tensor:
    """See ``runtime.kernels.linear_w4a16.LinearW4A16``."""
    return (x.to(torch.float32) @ dequantize(weight).t()).to(x.dtype)


def dequantize(weight: W4Matrix) -> Tensor:
    """(O, I) float32."""
    num_outputs = weight.quants.shape[0]
    packed = weight.quants.view(num_outputs, -1, GROUP // 2)
    quants = torch.cat([packed & 15, packed >> 4], -1).to(torch.float32)
    scales, minimums = (part.to(torch.float32) for part in (weight.scales, weight.minimums))
    return (quants * scales.unsqueeze(-1) + minimums.unsqueeze(-1)).flatten(1)
