"""Rotary positions for query and key heads, keys and values into the paged cache, in one pass.

Pairs of a head are items (2i, 2i + 1) where ``interleaved``, else (i, i + R / 2); the first R items
of a head turn, the others stay [Su et al. 2021, sec. 3.2.2].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class RopeKvWrite(Protocol):
    """qkv: (T, H + 2 K, D), query heads, then key heads, then value heads; cosines and sines:
    (T, R / 2) float32; slots: (T,) int64, block id * block size + offset, each once; caches:
    (N, block size, K, D), written at the slots -> turned query heads (T, H, D), new.
    """

    def __call__(
        self,
        qkv: Tensor,
        cosines: Tensor,
        sines: Tensor,
        slots: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        *,
        interleaved: bool,
    ) -> Tensor: ...
