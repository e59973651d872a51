"""What does the runtime need of a device?  Plain torch answers for any device torch knows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.plan import Float32Array


class Device(Protocol):
    """Where weights and KV cache live, and which kernels are preferred there."""

    name: str
    backends: tuple[str, ...]  # kernel backends, the most preferred first
    num_threads: int  # for backends that bring their own pool

    def upload(self, array: npt.NDArray[Any]) -> Tensor:
        """The array on the device; on a CPU both may share memory."""
        ...

    def download(self, tensor: Tensor) -> Float32Array:
        """The tensor as a float32 array in host memory; on a CPU both may share memory."""
        ...

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        """A float32 tensor of zeros, touched only where it is used if the device can do so."""
        ...

    def inference(self) -> AbstractContextManager[None]:
        """No gradients inside, on the calling thread."""
        ...


class TorchDevice:
    """The defaults: enough for any torch device to work before it has kernels of its own."""

    backends: tuple[str, ...] = ()
    num_threads = 1

    def __init__(self, name: str) -> None:
        """``name`` is torch's, such as ``cpu`` or ``cuda:0``."""
        self.name = name

    def upload(self, array: npt.NDArray[Any]) -> Tensor:
        import torch

        return torch.from_numpy(array).to(self.name)

    def download(self, tensor: Tensor) -> Float32Array:
        return np.asarray(tensor.float().cpu().numpy(), np.float32)

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        import torch

        return torch.zeros(shape, dtype=torch.float32, device=self.name)

    def inference(self) -> AbstractContextManager[None]:
        import torch

        return torch.inference_mode()
