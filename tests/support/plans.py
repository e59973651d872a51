"""How does a test say which tokens to compute?  StepPlans by hand, without a scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.plan import StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The next ``token_ids`` of a sequence of which ``start`` tokens are already computed."""

    token_ids: Sequence[int]
    start: int
    block_ids: Sequence[int]
    all_logits: bool = False  # of every row instead of the last
    prompt_len: int = 0  # tokens of the sequence that count as its prompt
    batch_invariant: bool = True


def build_plan(chunks: Sequence[Chunk], *, block_size: int) -> StepPlan:
    """One step that computes ``chunks`` in this order."""
    lengths = [len(chunk.token_ids) for chunk in chunks]
    query_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tables = np.full(
        (len(chunks), max((len(chunk.block_ids) for chunk in chunks), default=0)), -1, np.int32
    )
    positions: list[int] = []
    slots: list[int] = []
    logits_rows: list[int] = []
    for index, chunk in enumerate(chunks):
        tables[index, : len(chunk.block_ids)] = chunk.block_ids
        rows = range(chunk.start, chunk.start + len(chunk.token_ids))
        positions += rows
        slots += [chunk.block_ids[p // block_size] * block_size + p % block_size for p in rows]
        first, end = int(query_starts[index]), int(query_starts[index + 1])
        logits_rows += range(first if chunk.all_logits else end - 1, end)
    return StepPlan(
        token_ids=np.array([id_ for chunk in chunks for id_ in chunk.token_ids], np.int32),
        positions=np.array(positions, np.int32),
        query_starts=query_starts,
        context_lens=np.array([c.start + len(c.token_ids) for c in chunks], np.int32),
        prompt_lens=np.array([chunk.prompt_len for chunk in chunks], np.int32),
        batch_invariant=np.array([chunk.batch_invariant for chunk in chunks], np.bool_),
        block_tables=tables,
        slot_mapping=np.array(slots, np.int64),
        logits_rows=np.array(logits_rows, np.int32),
    )
