"""What does the runtime need of a device?  Plain torch answers for any device torch knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from runtime.kernels.linear import Weight
    from runtime.plan import Float32Array
    from runtime.weights.source import RawTensor

Step = Callable[[], "Tensor"]


class Device(Protocol):
    """Where weights and KV cache live, and which kernels are preferred there."""

    name: str
    backends: tuple[str, ...]  # kernel backends, the most preferred first
    item_bytes: int  # of an item of the KV cache
    captures: bool  # whether ``capture`` makes a step cheaper to start

    def upload(self, array: npt.NDArray[Any]) -> Tensor:
        """The array on the device, as it is; on a CPU both may share memory."""
        ...

    def weights(self, array: Float32Array) -> Tensor:
        """The array on the device, in the type that it computes in."""
        ...

    def matrix(self, parts: Sequence[RawTensor]) -> Weight:
        """Matrices of equal width stacked into one, dense or packed as the kernels take it."""
        ...

    def download(self, tensor: Tensor) -> Float32Array:
        """The tensor as a float32 array in host memory; on a CPU both may share memory."""
        ...

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Zeros of the KV cache's type, touched only where used if the device can do so."""
        ...

    def inference(self) -> AbstractContextManager[None]:
        """No gradients inside, on the calling thread."""
        ...

    def capture(self, step: Step) -> Step:
        """``step``, whose inputs and outputs stay where they are, recorded to be run again."""
        ...


class TorchDevice:
    """The defaults: enough for any torch device to work before it has kernels of its own."""

    backends: tuple[str, ...] = ()
    item_bytes = 4
    captures = False

    def __init__(self, name: str) -> None:
        """``name`` is torch's, such as ``cpu`` or ``cuda:0``."""
        self.name = name

    @property
    def dtype(self) -> torch.dtype:
        """The type that it computes in."""
        import torch

        return torch.float32

    def upload(self, array: npt.NDArray[Any]) -> Tensor:
        import torch

        return torch.from_numpy(array).to(self.name)

    def weights(self, array: Float32Array) -> Tensor:
        return self.upload(array).to(self.dtype)

    def matrix(self, parts: Sequence[RawTensor]) -> Weight:
        return self.weights(np.concatenate([part.dequantize() for part in parts]))

    def download(self, tensor: Tensor) -> Float32Array:
        return np.asarray(tensor.float().cpu().numpy(), np.float32)

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        import torch

        return torch.zeros(shape, dtype=self.dtype, device=self.name)

    def inference(self) -> AbstractContextManager[None]:
        import torch

        return torch.inference_mode()

    def capture(self, step: Step) -> Step:
        return step
