"""Compiled CPU backend of ``paged_attention``: float32, online softmax, own threads."""

import torch
from torch import Tensor

from runtime import _native
from runtime.plan import StepPlan

_LANES = 16  # runtime/native/attention_kernel.h
_MAX_HEAD_DIM = 256


def supports(*, head_dim: int, plain_attention: bool) -> bool:
    """Whether heads of this size are compiled in; windows and soft caps are not."""
    return plain_attention and head_dim % _LANES == 0 and head_dim <= _MAX_HEAD_DIM


class NativePagedAttention:
    """See ``runtime.kernels.paged_attention.PagedAttention``."""

    def __init__(self, cpu: _native.Cpu) -> None:
        self._cpu = cpu

    def prepare(self, plan: StepPlan, *, num_blocks: int, block_size: int) -> _native.AttentionStep:
        return _native.AttentionStep(
            plan.query_starts,
            plan.context_lens,
            plan.block_tables,
            num_blocks=num_blocks,
            block_size=block_size,
        )

    def attend(
        self,
        step: _native.AttentionStep,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        *,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Tensor:
        if window or softcap:
            raise ValueError("windows and soft caps are not compiled in")
        out = torch.empty(q.shape, dtype=torch.float32)
        _native.paged_attention(self._cpu, step, q, k_cache, v_cache, out, scale)
        return out


def create(*, num_threads: int) -> NativePagedAttention:
    """With a pool of ``num_threads``, the caller's thread included."""
    return NativePagedAttention(_native.Cpu(num_threads))
