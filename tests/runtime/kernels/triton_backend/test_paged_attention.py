"""Triton's paged attention against the reference, in the interpreter."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from runtime.kernels.paged_attention import PagedAttention, reference  # noqa: E402
from runtime.kernels.paged_attention import triton as backend  # noqa: E402
from runtime.plan import StepPlan  # noqa: E402

NUM_BLOCKS = 64


def make_plan(contexts: list[int], counts: list[int], block_size: int, seed: int) -> StepPlan:
    """Sequences with these contexts, of which the last ``counts`` tokens are in the step."""
    rng = np.random.default_rng(seed)
    free = rng.permutation(NUM_BLOCKS).tolist()
    width = max(1, max((-(-context // block_size) for context in contexts), default=1))
    tables = np.full((len(contexts), width), -1, np.int32)
    for row, context in enumerate(contexts):
        needed = -(-context // block_size)
        tables[row, :needed] = [free.pop() for _ in range(needed)]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    positions = [p for c, n in zip(contexts, counts, strict=True) for p in range(c - n, c)]
    return StepPlan(
        token_ids=np.zeros(starts[-1], np.int32),
        positions=np.array(positions, np.int32),
        query_starts=starts,
        context_lens=np.array(contexts, np.int32),
        prompt_lens=np.zeros(len(contexts), np.int32),
        batch_invariant=np.ones(len(contexts), np.bool_),
        block_tables=tables,
        slot_mapping=np.zeros(starts[-1], np.int64),
        logits_rows=np.zeros(0, np.int32),
    )


@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (5, 0.0), (40, 3.0)])
@pytest.mark.parametrize(
    ("contexts", "counts"),
    [
        ([1], [1]),
        ([33, 7, 70], [1, 7, 1]),  # decode rows beside a whole prompt
        ([50, 12], [21, 0]),  # a chunk of more than one tile, and a sequence without rows
        ([], []),
    ],
)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(9, 3, 16), (4, 4, 24)])
def test_paged_attention(
    contexts: list[int], counts: list[int], num_heads: int, num_kv_heads: int, head_dim: int,
    window: int, softcap: float,
) -> None:  # fmt: skip
    torch.manual_seed(3)
    plan = make_plan(contexts, counts, block_size=8, seed=5)
    q = torch.randn(plan.num_tokens, num_heads, head_dim) * 2
    caches = [torch.randn(NUM_BLOCKS, 8, num_kv_heads, head_dim) for _ in range(2)]
    results = []
    attentions: tuple[PagedAttention, PagedAttention] = (
        backend.create(),
        reference.create(),
    )
    for attention in attentions:
        step = attention.prepare(plan, num_blocks=NUM_BLOCKS, block_size=8)
        results.append(
            attention.attend(
                step, q, caches[0], caches[1], head_dim**-0.5, window=window, softcap=softcap
            )
        )
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("contexts", "counts", "spoil"),
    [([9], [9], 64), ([9], [9], -1), ([4], [5], None)],
)
def test_a_plan_that_contradicts_itself_is_refused(
    contexts: list[int], counts: list[int], spoil: int | None
) -> None:
    plan = make_plan(contexts, counts, block_size=8, seed=5)
    if spoil is not None:
        plan.block_tables[0, 1] = spoil
    with pytest.raises(ValueError, match="context"):
        backend.create().prepare(plan, num_blocks=NUM_BLOCKS, block_size=8)
