"""GPU backend of ``paged_attention``: online softmax over a sequence's blocks [Dao et al. 2022].

A program takes a few query rows of one sequence for one KV head, with all query heads of its group,
so that keys and values are read once for the group. A decode row is a tile of one row.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.plan import Int32Array, StepPlan

_MIN_TILE_ROWS = 16  # the least that tensor cores take; rows are (query, head of the group)
_MAX_QUERIES = 16  # of one sequence in a tile
_TILE_KEYS = 32
_LOG2_E = 1.4426950408889634


@dataclass(slots=True, kw_only=True)
class TritonStep:
    """One plan; what the kernel reads goes to the device with the first layer.

    ``tiles``: (P, 4), a sequence, its first row in T, the number of rows, the first one's position.
    """

    tiles: Int32Array
    block_tables: Int32Array  # (B, max blocks)
    num_queries: int  # in the largest tile, a power of two
    on_device: tuple[Tensor, Tensor] | None = None

    def tensors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Tiles and block tables on the device of ``like``."""
        if self.on_device is None:
            parts = (self.tiles, self.block_tables)
            tiles, tables = (torch.from_numpy(part).to(like.device) for part in parts)
            self.on_device = (tiles, tables)
        return self.on_device


class TritonPagedAttention:
    """See ``runtime.kernels.paged_attention.PagedAttention``."""

    def prepare(self, plan: StepPlan, *, num_blocks: int, block_size: int) -> TritonStep:
        contexts, counts = plan.context_lens, np.diff(plan.query_starts)
        if (counts < 0).any() or (counts > contexts).any():
            raise ValueError("a sequence has more rows than context")
        needed = -(-contexts // block_size)
        columns = np.arange(plan.block_tables.shape[1])
        used = plan.block_tables[columns < needed[:, None]]
        if used.size < needed.sum() or (
            used.size and not 0 <= used.min() <= used.max() < num_blocks
        ):
            raise ValueError("a block table does not cover its context")
        largest = int(counts.max(initial=1))
        num_queries = min(_MAX_QUERIES, int(triton.next_power_of_2(max(1, largest))))
        return TritonStep(
            tiles=_tiles(plan, counts, num_queries),
            block_tables=np.ascontiguousarray(plan.block_tables),
            num_queries=num_queries,
        )

    def attend(
        self,
        step: TritonStep,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        *,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        _, num_heads, head_dim = q.shape
        _, block_size, num_kv_heads, _ = k_cache.shape
        if step.tiles.size == 0:
            return out
        tiles, block_tables = step.tensors(q)
        group = num_heads // num_kv_heads
        rows = int(triton.next_power_of_2(group * step.num_queries))
        _attend[(len(step.tiles), num_kv_heads)](
            q, k_cache, v_cache, out, tiles, block_tables,
            q.stride(0), block_tables.shape[1], block_size, num_heads, num_kv_heads, head_dim,
            scale * _LOG2_E, softcap * _LOG2_E, window,
            GROUP=group, ROWS=max(_MIN_TILE_ROWS, rows), KEYS=_TILE_KEYS,
            ITEMS=max(16, int(triton.next_power_of_2(head_dim))), SOFTCAP=softcap > 0,
        )  # fmt: skip
        return out


def create() -> TritonPagedAttention:
    return TritonPagedAttention()


def _tiles(plan: StepPlan, counts: Int32Array, num_queries: int) -> Int32Array:
    """Stretches of at most ``num_queries`` rows, longest contexts first: they take longest."""
    tiles = [
        (sequence, start + first, min(num_queries, count - first), context - count + first)
        for sequence, (start, count, context) in enumerate(
            zip(
                plan.query_starts.tolist(),
                counts.tolist(),
                plan.context_lens.tolist(),
                strict=False,
            )
        )
        for first in range(0, count, num_queries)
    ]
    tiles.sort(key=lambda tile: -tile[3])
    return np.array(tiles, dtype=np.int32).reshape(-1, 4)


@triton.jit
def _attend(
    q_ptr, k_cache_ptr, v_cache_ptr, out_ptr, tiles_ptr, block_tables_ptr,
    q_stride, max_blocks, block_size, num_heads, num_kv_heads, head_dim,
    scale, softcap, window,
    GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, ITEMS: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    tile_ptr, kv_head = tiles_ptr + tl.program_id(0) * 4, tl.program_id(1)
    sequence, first_row = tl.load(tile_ptr), tl.load(tile_ptr + 1)
    num_queries, first_position = tl.load(tile_ptr + 2), tl.load(tile_ptr + 3)
    rows, items = tl.arange(0, ROWS), tl.arange(0, ITEMS)
    queries, heads = rows // GROUP, kv_head * GROUP + rows % GROUP
    positions = first_position + queries
    is_used = (queries < num_queries)[:, None] & (items < head_dim)[None, :]
    q_rows = (first_row + queries).to(tl.int64) * q_stride + heads * head_dim
    q = tl.load(q_ptr + q_rows[:, None] + items[None, :], mask=is_used, other=0.0)

    last = first_position + num_queries  # keys from here on are seen by no row
    first = 0
    if window > 0:  # of the first query, in whole tiles of keys
        first = tl.maximum(first_position - window + 1, 0) // KEYS * KEYS
    peaks = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    totals = tl.zeros((ROWS,), dtype=tl.float32)
    sums = tl.zeros((ROWS, ITEMS), dtype=tl.float32)
    for start in range(first, last, KEYS):
        keys = start + tl.arange(0, KEYS)
        is_key = keys < last
        table_ptr = block_tables_ptr + sequence * max_blocks + keys // block_size
        blocks = tl.load(table_ptr, mask=is_key, other=0).to(tl.int64)
        slots = (blocks * block_size + keys % block_size) * num_kv_heads + kv_head
        from_cache = slots[:, None] * head_dim + items[None, :]
        is_item = is_key[:, None] & (items < head_dim)[None, :]
        k = tl.load(k_cache_ptr + from_cache, mask=is_item, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale  # in units of log2
        if SOFTCAP:  # softcap * tanh(scores / softcap)
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        is_seen = keys[None, :] <= positions[:, None]
        if window > 0:
            is_seen = is_seen & (keys[None, :] > positions[:, None] - window)
        scores = tl.where(is_seen, scores, float("-inf"))
        new_peaks = tl.maximum(peaks, tl.max(scores, axis=1))
        base = tl.where(new_peaks == float("-inf"), 0.0, new_peaks)  # a row may see no key yet
        weights, shrink = tl.exp2(scores - base[:, None]), tl.exp2(peaks - base)
        v = tl.load(v_cache_ptr + from_cache, mask=is_item, other=0.0)
        totals = totals * shrink + tl.sum(weights, axis=1)
        sums = tl.dot(weights.to(v.dtype), v, sums * shrink[:, None])
        peaks = new_peaks
    y = sums / tl.where(totals > 0, totals, 1.0)[:, None]
    to_ptr = out_ptr + ((first_row + queries).to(tl.int64) * num_heads + heads)[:, None] * head_dim
    tl.store(to_ptr + items[None, :], y.to(out_ptr.dtype.element_ty), mask=is_used)
