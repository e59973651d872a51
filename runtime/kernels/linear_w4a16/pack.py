"""Which stored matrices are 4-bit matrices already, and how do their blocks become one?

GGUF's block holds its scale (and minimum) before its 16 bytes of nibbles [ggml-common.h]; here each
kind lies in a tensor of its own. Nothing is rounded: Q4_0's minimum is -8 scales, an exact half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runtime.kernels.linear_w4a16 import GROUP, W4Matrix

if TYPE_CHECKING:
    from runtime.weights.quant import TensorType
    from runtime.weights.source import RawTensor

_HALF_BYTES = 2
_NIBBLE_BYTES = GROUP // 2
_Q4_0_ZERO = 8

Halves = npt.NDArray[np.float16]


def is_w4(type_: TensorType) -> bool:
    """Whether ``pack_w4`` takes it."""
    return type_.name in ("Q4_0", "Q4_1")


def pack_w4(parts: Sequence[RawTensor], device: str) -> W4Matrix:
    """Matrices of equal width, Q4_0 or Q4_1, stacked into one on ``device`` (torch's name)."""
    import torch

    stacked = [np.concatenate(kind) for kind in zip(*map(_split, parts), strict=True)]
    quants, scales, minimums = (torch.from_numpy(array).to(device) for array in stacked)
    return W4Matrix(quants=quants, scales=scales, minimums=minimums)


def _split(part: RawTensor) -> tuple[npt.NDArray[np.uint8], Halves, Halves]:
    """Quants (O, I / 2), scales and minimums (O, I / 32) of one matrix."""
    num_outputs, num_inputs = part.shape
    blocks = part.data.reshape(num_outputs, num_inputs // GROUP, part.type.block_bytes)
    quants = blocks[..., -_NIBBLE_BYTES:].reshape(num_outputs, -1)
    scales = _halves(blocks, 0)
    if part.type.name == "Q4_0":
        return quants, scales, scales * np.float16(-_Q4_0_ZERO)
    return quants, scales, _halves(blocks, _HALF_BYTES)


def _halves(blocks: npt.NDArray[np.uint8], start: int) -> Halves:
    return np.ascontiguousarray(blocks[..., start : start + _HALF_BYTES]).view("<f2")[..., 0]
