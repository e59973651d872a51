"""Does the reference of paged attention agree with naive attention over contiguous keys?"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.plans import Chunk, build_plan

NUM_SPARE_BLOCKS = 3
# (rows of this step, tokens before it) of each sequence
BATCHES: dict[str, list[tuple[int, int]]] = {
    "one decode row": [(1, 0)],
    "decode rows": [(1, 1), (1, 15), (1, 16), (1, 97), (1, 256)],
    "one prompt": [(257, 0)],
    "second chunk": [(64, 193)],
    "mixed": [(1, 40), (33, 0), (1, 0), (7, 90), (128, 1), (1, 31), (2, 2)],
}
SHAPES = [  # query heads, KV heads, head size, block size
    (9, 3, 64, 16),
    (4, 2, 16, 16),
    (1, 1, 32, 1),
    (8, 8, 80, 5),
    (6, 1, 128, 32),
    (40, 1, 48, 3),
]


def backend(name: str) -> Any:
    return importlib.import_module(f"runtime.kernels.paged_attention.{name}").create()


def naive(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """float64, one row and one head at a time. q: (Q, H, D), keys, values: (C, K, D)."""
    group = q.shape[1] // keys.shape[1]
    first = keys.shape[0] - q.shape[0]
    out = torch.empty(q.shape, dtype=torch.float64)
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            k = keys[: first + row + 1, head // group].double()
            v = values[: first + row + 1, head // group].double()
            weights = (k @ q[row, head].double() * q.shape[2] ** -0.5).softmax(0)
            out[row, head] = weights @ v
    return out


class Case:
    """Random caches with scrambled block tables."""

    def __init__(self, shape: tuple[int, int, int, int], batch: Sequence[tuple[int, int]]) -> None:
        self.heads, self.kv_heads, self.head_dim, self.block_size = shape
        self.batch = batch
        rng = np.random.default_rng(7)
        counts = [-(-(rows + before) // self.block_size) for rows, before in batch]
        self.num_blocks = sum(counts) + NUM_SPARE_BLOCKS
        order = iter(rng.permutation(self.num_blocks).tolist())
        self.tables = [[next(order) for _ in range(count)] for count in counts]
        chunks = [
            Chunk(token_ids=[0] * rows, start=before, block_ids=table)
            for (rows, before), table in zip(batch, self.tables, strict=True)
        ]
        self.plan = build_plan(chunks, block_size=self.block_size)
        generator = torch.Generator().manual_seed(3)
        cache = (self.num_blocks, self.block_size, self.kv_heads, self.head_dim)
        self.k_cache = torch.randn(cache, generator=generator)
        self.v_cache = torch.randn(cache, generator=generator)
        width = self.heads + self.kv_heads  # q is a view with a stride, as in the decoder
        wide = torch.randn((self.plan.num_tokens, width, self.head_dim), generator=generator)
        self.q = wide[:, : self.heads] * 3

    def attend(self, attention: Any) -> Tensor:
        step = attention.prepare(self.plan, num_blocks=self.num_blocks, block_size=self.block_size)
        out: Tensor = attention.attend(
            step, self.q, self.k_cache, self.v_cache, self.head_dim**-0.5
        )
        return out

    def exact(self) -> Tensor:
        """The reference in float64."""
        attention = backend("reference")
        step = attention.prepare(self.plan, num_blocks=self.num_blocks, block_size=self.block_size)
        out: Tensor = attention.attend(
            step,
            self.q.double(),
            self.k_cache.double(),
            self.v_cache.double(),
            self.head_dim**-0.5,
        )
        return out

    def expected(self) -> Tensor:
        """Naive attention, which shares no code with the reference."""
        out = torch.empty(self.q.shape, dtype=torch.float64)
        starts = self.plan.query_starts.tolist()
        for index, (rows, before) in enumerate(self.batch):
            keys = self.k_cache[self.tables[index]].flatten(0, 1)[: before + rows]
            values = self.v_cache[self.tables[index]].flatten(0, 1)[: before + rows]
            rows_of = slice(starts[index], starts[index + 1])
            out[rows_of] = naive(self.q[rows_of], keys, values)
        return out


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_agrees_with_naive(batch: str, shape: tuple[int, int, int, int]) -> None:
    case = Case(shape, BATCHES[batch])
    torch.testing.assert_close(
        case.attend(backend("reference")).double(), case.expected(), atol=3e-6, rtol=1e-5
    )


def test_empty_batches_and_sequences_without_rows() -> None:
    assert Case(SHAPES[0], []).attend(backend("reference")).shape == (0, 9, 64)
    case = Case(SHAPES[0], [(0, 5), (2, 1), (0, 0)])
    torch.testing.assert_close(
        case.attend(backend("reference")).double(), case.expected(), atol=3e-6, rtol=1e-5
    )


def test_large_scores_do_not_overflow() -> None:
    case = Case(SHAPES[0], [(40, 3)])
    case.q *= 200
    torch.testing.assert_close(
        case.attend(backend("reference")).double(), case.expected(), atol=1e-3, rtol=1e-3
    )


def test_memory_past_the_context_is_never_read() -> None:
    case = Case(SHAPES[0], [(1, 17), (3, 30)])
    want = case.expected()
    mask = torch.ones(case.num_blocks * case.block_size, dtype=torch.bool)
    for table, (rows, before) in zip(case.tables, case.batch, strict=True):
        for position in range(rows + before):
            block = table[position // case.block_size]
            mask[block * case.block_size + position % case.block_size] = False
    case.k_cache.flatten(0, 1)[mask] = torch.nan
    case.v_cache.flatten(0, 1)[mask] = torch.nan
    torch.testing.assert_close(
        case.attend(backend("reference")).double(), want, atol=3e-6, rtol=1e-5
    )


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_block_ids_out_of_range_are_refused(wrong: int) -> None:
    case = Case(SHAPES[0], [(1, 20)])
    case.plan.block_tables[0, 1] = wrong
    with pytest.raises(ValueError, match="block"):
        case.attend(backend("reference"))


def test_contradicting_plans_are_refused() -> None:
    case = Case(SHAPES[0], [(4, 0)])
    case.plan.context_lens[0] = 3
    with pytest.raises(ValueError, match="context"):
        case.attend(backend("reference"))
    case.plan.context_lens[0] = 400
    with pytest.raises(ValueError, match="context"):
        case.attend(backend("reference"))
