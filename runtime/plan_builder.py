"""How do scheduled sequences become the flat arrays of a StepPlan?"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field

import numpy as np

from runtime.plan import StepPlan
from runtime.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRow:
    """``num_tokens`` of a sequence's uncomputed tokens, from the first one on, then its drafts.

    ``draft_token_ids`` are guesses at the tokens that come after the sequence's last. They are
    computed as if they were right, and only a row that computes all the sequence has brings any.
    """

    sequence: Sequence
    num_tokens: int
    draft_token_ids: tuple[int, ...] = field(default=(), repr=False)

    @property
    def is_sampled(self) -> bool:
        """Whether nothing is left to compute after this step, so that the next token is due."""
        return self.num_tokens == self.sequence.num_uncomputed_tokens

    @property
    def num_planned_tokens(self) -> int:
        """Tokens of the plan, drafts included."""
        return self.num_tokens + len(self.draft_token_ids)


def build_plan(rows: Rows[ScheduledRow], *, block_size: int) -> StepPlan:
    """The batch of these rows, in order; reads the sequences and changes nothing.

    A sampled row has 1 + (number of drafts) logits rows: after its last token and after each draft.
    """
    starts = [row.sequence.num_computed_tokens for row in rows]
    counts = np.array([row.num_planned_tokens for row in rows], dtype=np.int32)
    context_lens = np.array(starts, dtype=np.int32) + counts
    query_starts = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(counts, out=query_starts[1:])

    token_ids: list[int] = []
    for row, start in zip(rows, starts, strict=True):
        token_ids += row.sequence.token_ids[start : start + row.num_tokens]
        token_ids += row.draft_token_ids
    row_idx = np.repeat(np.arange(len(rows)), counts)
    first_positions = context_lens - query_starts[1:]  # position minus flat index, per row
    positions = np.arange(len(token_ids), dtype=np.int32) + first_positions[row_idx]

    nums_blocks = -(-context_lens // block_size)
    block_tables = np.full((len(rows), int(nums_blocks.max())), -1, dtype=np.int32)
    for b, (row, num_blocks) in enumerate(zip(rows, nums_blocks, strict=True)):
        block_tables[b, :num_blocks] = row.sequence.block_table.ids[:num_blocks]
    blocks = block_tables[row_idx, positions // block_size].astype(np.int64)

    logits_rows: list[int] = []
    for row, end in zip(rows, query_starts[1:].tolist(), strict=True):
        if row.is_sampled:
            logits_rows += range(end - 1 - len(row.draft_token_ids), end)
    return StepPlan(
        token_ids=np.array(token_ids, dtype=np.int32),
        positions=positions,
        query_starts=query_starts,
        context_lens=context_lens,
        block_tables=block_tables,
        slot_mapping=blocks * block_size + positions % block_size,
        logits_rows=np.array(logits_rows, dtype=np.int32),
    )
