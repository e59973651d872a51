"""Plain torch: oracle of ``rope_kv_write``."""

import torch
from torch import Tensor


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
    """See ``runtime.kernels.rope_kv_write.RopeKvWrite``."""
    num_kv_heads = k_cache.shape[2]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    turned = _turn(qkv[:, : num_heads + num_kv_heads], cosines, sines, interleaved)
    k_cache.flatten(0, 1).index_copy_(0, slots, turned[:, num_heads:].to(k_cache.dtype))
    values = qkv[:, num_heads + num_kv_heads :]
    v_cache.flatten(0, 1).index_copy_(0, slots, values.to(v_cache.dtype))
    return turned[:, :num_heads]


def _turn(heads: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    """heads: (T, any, D)."""
    half = cosines.shape[1]
    wide = heads[..., : 2 * half].to(torch.float32)
    if interleaved:
        first, second = wide[..., 0::2], wide[..., 1::2]
    else:
        first, second = wide[..., :half], wide[..., half:]
    cosines, sines = cosines.unsqueeze(1), sines.unsqueeze(1)
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    joined = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat([joined.to(heads.dtype), heads[..., 2 * half :]], -1)
