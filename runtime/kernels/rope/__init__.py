"""Rotary position embedding [Su et al. 2021, sec. 3.2.2].

Each pair of items of a head is one complex number that is multiplied by a rotation. Of the first
R = 2 * pairs items a pair is (2j, 2j + 1), ``interleaved``, as GGUF's llama files store query and
key rows, or (j, j + R / 2), ``half``, as all others do. Items from R on stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.models.config import RopeStyle


class Rope(Protocol):
    """x: (T, H, D) with unit stride in D, rotations: (T, R / 2) complex -> (T, H, D), new."""

    def __call__(self, x: Tensor, rotations: Tensor, style: RopeStyle) -> Tensor: ...
