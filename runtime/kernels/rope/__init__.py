"""Rotary position embedding [Su et al. 2021, sec. 3.2.2], on interleaved pairs.

GGUF's llama files store query and key rows so that items 2i and 2i + 1 of a head are a pair: each
pair is one complex number, rotated by the angle position * theta^(-2i / D).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Rope(Protocol):
    """x: (T, H, D) with unit stride in D, rotations: (T, D / 2) complex -> (T, H, D), new."""

    def __call__(self, x: Tensor, rotations: Tensor) -> Tensor: ...
