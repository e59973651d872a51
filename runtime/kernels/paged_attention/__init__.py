"""Causal attention of a ragged batch over a paged KV cache [Kwon et al. 2023].

Row i of a sequence's q rows stands at position ``context_len - q rows + i`` and sees the keys of
positions 0 to its own, which lie in the blocks of the sequence's table, in that order. Prefill
chunks and decode rows mix freely; query heads share KV heads in groups of H / K.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.plan import StepPlan


class PagedAttention(Protocol):
    """Prepared once per step, then called once per layer."""

    def prepare(self, plan: StepPlan, *, num_blocks: int, block_size: int) -> Any:
        """What ``attend`` needs of the plan. Raises: ValueError, the plan contradicts itself."""
        ...

    def attend(
        self,
        step: Any,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        *,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Tensor:
        """q: (T, H, D) with contiguous rows, caches: (N, block size, K, D) -> (T, H, D), new.

        Scores are q k ``scale``, then ``softcap`` * tanh(score / ``softcap``) unless it is 0.
        With a ``window`` W position i sees only j > i - W. Softmax and sums in float32 at least.
        """
        ...
