"""Plain torch: oracle of ``paged_attention``.  One gather and one softmax per sequence."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.plan import StepPlan


@dataclass(frozen=True, slots=True)
class _Rows:
    start: int
    end: int
    context_len: int
    block_ids: Tensor


class ReferencePagedAttention:
    """See ``runtime.kernels.paged_attention.PagedAttention``."""

    def prepare(self, plan: StepPlan, *, num_blocks: int, block_size: int) -> list[_Rows]:
        starts, rows = plan.query_starts.tolist(), []
        for index, context_len in enumerate(plan.context_lens.tolist()):
            block_ids = plan.block_tables[index, : -(-context_len // block_size)]
            if not starts[index] <= starts[index + 1] <= starts[index] + context_len:
                raise ValueError(f"sequence {index} has more rows than context")
            if block_ids.size * block_size < context_len or (
                block_ids.size and not 0 <= block_ids.min() <= block_ids.max() < num_blocks
            ):
                raise ValueError(f"the block table of sequence {index} does not cover its context")
            ids = torch.from_numpy(block_ids.astype("int64"))
            rows.append(_Rows(starts[index], starts[index + 1], context_len, ids))
        return rows

    def attend(
        self,
        step: list[_Rows],
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        *,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for rows in step:
            if rows.start == rows.end:
                continue
            block_ids = rows.block_ids.to(q.device)
            keys = k_cache[block_ids].flatten(0, 1)[: rows.context_len]
            values = v_cache[block_ids].flatten(0, 1)[: rows.context_len]
            own = q[rows.start : rows.end]
            out[rows.start : rows.end] = _attend(own, keys, values, scale, window, softcap)
        return out


def create() -> ReferencePagedAttention:
    return ReferencePagedAttention()


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, scale: float, window: int, softcap: float
) -> Tensor:
    """q: (Q, H, D), keys and values: (C, K, D) -> (Q, H, D)."""
    wide = torch.promote_types(q.dtype, torch.float32)
    num_rows, num_heads, head_dim = q.shape
    context_len, num_kv_heads, _ = keys.shape
    group = num_heads // num_kv_heads
    grouped = q.to(wide).reshape(num_rows, num_kv_heads, group, head_dim)
    by_head = grouped.permute(1, 2, 0, 3).flatten(1, 2)  # (K, G * Q, D)
    scores = by_head @ keys.to(wide).permute(1, 2, 0) * scale
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    positions = torch.arange(context_len - num_rows, context_len, device=q.device).unsqueeze(1)
    others = torch.arange(context_len, device=q.device)
    hidden = others > positions
    if window:
        hidden |= others <= positions - window
    scores = scores.view(num_kv_heads, group, num_rows, context_len).masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1).flatten(1, 2)
    attended = (weights @ values.to(wide).transpose(0, 1)).view(num_heads, num_rows, head_dim)
    return attended.transpose(0, 1).to(q.dtype)
