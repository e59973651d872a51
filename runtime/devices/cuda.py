"""NVIDIA GPUs: Triton's kernels in bfloat16, 4-bit weights kept packed, decode in CUDA graphs.

Tested through Triton's interpreter on CPUs; not yet measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from runtime.devices.base import Step, TorchDevice
from runtime.kernels.linear_w4a16.pack import is_w4, pack_w4

if TYPE_CHECKING:
    import torch

    from runtime.kernels.linear import Weight
    from runtime.weights.source import RawTensor

GpuWeights = Literal["stored", "fp8"]
_WARM_UP_STEPS = 2  # compile the kernels and settle the allocator before a capture


class CudaDevice(TorchDevice):
    """One GPU. ``weights``: as stored where a kernel takes that, else bfloat16; or FP8 by row."""

    backends: tuple[str, ...] = ("triton",)
    item_bytes = 2
    captures = True

    def __init__(self, name: str = "cuda:0", *, weights: GpuWeights = "stored") -> None:
        super().__init__(name)
        self._weights_as = weights

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return torch.bfloat16

    def matrix(self, parts: Sequence[RawTensor]) -> Weight:
        if self._weights_as == "fp8":
            from runtime.kernels.linear_fp8.reference import quantize_rows

            return quantize_rows(
                super().weights(np.concatenate([part.dequantize() for part in parts]))
            )
        if all(is_w4(part.type) for part in parts):
            return pack_w4(parts, self.name)
        return super().matrix(parts)

    def capture(self, step: Step) -> Step:
        import torch

        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_STEPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = step()

        def replay() -> torch.Tensor:
            graph.replay()
            return out

        return replay
