"""Compiled CPU backend of ``linear``: float32 weights as they are, own threads.

torch's OpenMP threads meet at a barrier in every call and stand still when another process has
one of the cores; tasks taken from a queue only slow down. Alone on the cores both are alike.
"""

import torch
from torch import Tensor

from runtime import _native
from runtime.kernels.linear import Weight


class NativeLinear:
    """See ``runtime.kernels.linear.Linear``; float32, contiguous."""

    def __init__(self, cpu: _native.Cpu) -> None:
        self._cpu = cpu

    def __call__(self, x: Tensor, weight: Weight, add: Tensor | None = None) -> Tensor:
        if not isinstance(weight, Tensor):
            raise TypeError("packed weights are for other devices")
        out = torch.empty((x.shape[0], weight.shape[0]), dtype=torch.float32)
        _native.linear(self._cpu, x, weight, add, out)
        return out


def create(*, num_threads: int) -> NativeLinear:
    """With a pool of ``num_threads``, the caller's thread included."""
    return NativeLinear(_native.Cpu(num_threads))
