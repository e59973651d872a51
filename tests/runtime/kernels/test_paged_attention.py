"""Does every backend of paged attention agree with naive attention over contiguous keys?"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.plans import Chunk, build_plan
from tests.support.resources import native_module

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


def backend(name: str, *, num_threads: int = 2) -> Any:
    if name == "native":
        native_module()
    module = importlib.import_module(f"runtime.kernels.paged_attention.{name}")
    return module.create(num_threads=num_threads)


def native_attention(num_threads: int, isa: str) -> Any:
    module = importlib.import_module("runtime.kernels.paged_attention.native")
    return module.NativePagedAttention(native_module().Cpu(num_threads, isa))


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


@pytest.mark.parametrize("name", ["reference", "native"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_agrees_with_naive(name: str, batch: str, shape: tuple[int, int, int, int]) -> None:
    case = Case(shape, BATCHES[batch])
    torch.testing.assert_close(
        case.attend(backend(name)).double(), case.expected(), atol=3e-6, rtol=1e-5
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
def test_native_agrees_with_the_reference(
    shape: tuple[int, int, int, int], num_threads: int, isa: str
) -> None:
    native = native_module()
    if isa not in native.isas():
        pytest.skip(f"this CPU has no {isa}")
    case = Case(shape, BATCHES["mixed"])
    error, reference_error = (
        (case.attend(attention).double() - case.exact()).abs().max()
        for attention in (native_attention(num_threads, isa), backend("reference"))
    )
    assert error <= 2 * reference_error + torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", ["reference", "native"])
def test_empty_batches_and_sequences_without_rows(name: str) -> None:
    assert Case(SHAPES[0], []).attend(backend(name)).shape == (0, 9, 64)
    case = Case(SHAPES[0], [(0, 5), (2, 1), (0, 0)])
    torch.testing.assert_close(
        case.attend(backend(name)).double(), case.expected(), atol=3e-6, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["reference", "native"])
def test_large_scores_do_not_overflow(name: str) -> None:
    case = Case(SHAPES[0], [(40, 3)])
    case.q *= 200
    torch.testing.assert_close(
        case.attend(backend(name)).double(), case.expected(), atol=1e-3, rtol=1e-3
    )


@pytest.mark.parametrize("name", ["reference", "native"])
def test_memory_past_the_context_is_never_read(name: str) -> None:
    case = Case(SHAPES[0], [(1, 17), (3, 30)])
    want = case.expected()
    mask = torch.ones(case.num_blocks * case.block_size, dtype=torch.bool)
    for table, (rows, before) in zip(case.tables, case.batch, strict=True):
        for position in range(rows + before):
            block = table[position // case.block_size]
            mask[block * case.block_size + position % case.block_size] = False
    case.k_cache.flatten(0, 1)[mask] = torch.nan
    case.v_cache.flatten(0, 1)[mask] = torch.nan
    torch.testing.assert_close(case.attend(backend(name)).double(), want, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["reference", "native"])
@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_block_ids_out_of_range_are_refused(name: str, wrong: int) -> None:
    case = Case(SHAPES[0], [(1, 20)])
    case.plan.block_tables[0, 1] = wrong
    with pytest.raises(ValueError, match="block"):
        case.attend(backend(name))


@pytest.mark.parametrize("name", ["reference", "native"])
def test_contradicting_plans_are_refused(name: str) -> None:
    case = Case(SHAPES[0], [(4, 0)])
    case.plan.context_lens[0] = 3
    with pytest.raises(ValueError, match="context"):
        case.attend(backend(name))
    case.plan.context_lens[0] = 400
    with pytest.raises(ValueError, match="context"):
        case.attend(backend(name))


def test_a_step_may_meet_layers_of_other_heads() -> None:
    """Tasks are planned for the heads of a call; those of an earlier call would write elsewhere."""
    native_module()
    wide = Case(SHAPES[0], BATCHES["mixed"])
    narrow = [tensor[..., :1, :].contiguous() for tensor in (wide.k_cache, wide.v_cache)]

    def attend_twice(kernel: Any) -> Tensor:
        step = kernel.prepare(wide.plan, num_blocks=wide.num_blocks, block_size=wide.block_size)
        kernel.attend(step, wide.q, wide.k_cache, wide.v_cache, 0.125)
        narrower: Tensor = kernel.attend(step, wide.q[:, :3].contiguous(), *narrow, 0.125)
        return narrower

    got, want = attend_twice(backend("native")), attend_twice(backend("reference"))
    torch.testing.assert_close(got, want, atol=3e-6, rtol=1e-5)


def test_native_refuses_arrays_that_do_not_fit() -> None:
    native = native_module()
    case = Case(SHAPES[0], [(2, 0)])
    step = backend("native").prepare(
        case.plan, num_blocks=case.num_blocks, block_size=case.block_size
    )
    cpu, out = native.Cpu(1), torch.empty(2, 9, 64)
    caches = (case.k_cache, case.v_cache)
    for q, k_cache, v_cache, to in (
        (case.q[:1], *caches, out),
        (case.q[:, :7], *caches, out[:, :7].contiguous()),
        (case.q, case.k_cache[:-1], case.v_cache[:-1], out),
        (case.q, case.k_cache, case.v_cache[:-1], out),
        (case.q, *caches, out[:, :8].contiguous()),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            native.paged_attention(cpu, step, q, k_cache, v_cache, to, 1.0)
    with pytest.raises(TypeError):
        native.paged_attention(cpu, step, case.q.double(), *caches, out, 1.0)
    with pytest.raises(ValueError, match="num_threads"):
        native.Cpu(0)
    with pytest.raises(ValueError, match="instruction set"):
        native.Cpu(1, "mmx")
