"""GPU backend of ``rope_kv_write``: one program per token and head."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.rms_norm.triton import block_of


def rope_kv_write(
    qkv: Tensor,
    cosines: Tensor,
    sines: Tensor,
    slots: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    interleaved: bool,
) -> Tensor:
    """See ``runtime.kernels.rope_kv_write.RopeKvWrite``; heads of ``qkv`` and caches contiguous."""
    num_tokens, num_all_heads, head_dim = qkv.shape
    num_kv_heads = k_cache.shape[2]
    num_heads = num_all_heads - 2 * num_kv_heads
    q = torch.empty((num_tokens, num_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    if num_tokens:
        _rope_kv_write[(num_tokens, num_all_heads)](
            qkv, cosines, sines, slots, k_cache, v_cache, q,
            qkv.stride(0), num_heads, num_kv_heads, head_dim, cosines.shape[1],
            INTERLEAVED=interleaved, BLOCK=block_of(head_dim),
        )  # fmt: skip
    return q


@triton.jit
def _rope_kv_write(
    qkv_ptr, cosines_ptr, sines_ptr, slots_ptr, k_cache_ptr, v_cache_ptr, q_ptr,
    qkv_stride, num_heads, num_kv_heads, head_dim, half,
    INTERLEAVED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    items = tl.arange(0, BLOCK)
    inside = items < head_dim
    from_ptr = qkv_ptr + token * qkv_stride + head * head_dim
    own = tl.load(from_ptr + items, mask=inside, other=0.0).to(tl.float32)
    turns = items < tl.where(head < num_heads + num_kv_heads, 2 * half, 0)  # values stay
    if INTERLEAVED:
        is_first, pairs = items % 2 == 0, items // 2
        partners = tl.where(is_first, items + 1, items - 1)
    else:
        is_first, pairs = items < half, tl.where(items < half, items, items - half)
        partners = tl.where(is_first, items + half, items - half)
    other = tl.load(from_ptr + partners, mask=turns, other=0.0).to(tl.float32)
    cosines = tl.load(cosines_ptr + token * half + pairs, mask=turns, other=1.0)
    sines = tl.load(sines_ptr + token * half + pairs, mask=turns, other=0.0)
    y = own * cosines + tl.where(is_first, -other, other) * sines
    if head < num_heads:
        to_ptr = q_ptr + (token * num_heads + head) * head_dim + items
        tl.store(to_ptr, y.to(q_ptr.dtype.element_ty), mask=inside)
    else:
        slot = tl.load(slots_ptr + token).to(tl.int64)
        if head < num_heads + num_kv_heads:
            to_ptr = k_cache_ptr + (slot * num_kv_heads + head - num_heads) * head_dim + items
            tl.store(to_ptr, y.to(k_cache_ptr.dtype.element_ty), mask=inside)
        else:
            kv_head = head - num_heads - num_kv_heads
            to_ptr = v_cache_ptr + (slot * num_kv_heads + kv_head) * head_dim + items
            tl.store(to_ptr, y.to(v_cache_ptr.dtype.element_ty), mask=inside)
