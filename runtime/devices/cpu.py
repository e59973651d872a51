"""The CPU: plain torch, with its own threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from runtime.devices.base import TorchDevice

if TYPE_CHECKING:
    from torch import Tensor


class CpuDevice(TorchDevice):
    """Shares memory with NumPy."""

    def __init__(self, *, num_threads: int = 0) -> None:
        """``num_threads`` 0 takes every CPU that this process may run on.

        Sets torch's thread count, which is one per process.
        """
        import torch

        super().__init__("cpu")
        torch.set_num_threads(num_threads or len(os.sched_getaffinity(0)))

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        # NumPy asks the system for zero pages, which cost no memory until written.
        return self.upload(np.zeros(shape, np.float32))
