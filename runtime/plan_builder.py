"""How do scheduled sequences become the flat arrays of a StepPlan?"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field

import numpy as np

from runtime.plan import Int32Array, StepPlan
from runtime.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRow:
    """``num_tokens`` of a sequence's uncomputed tokens, from the first one on, then its drafts.

    ``draft_token_ids`` are guesses at the tokens that come after the sequence's last. They are
    computed as if they were right, and only a sampled row brings any. ``is_sampled``: nothing is
    left to compute after this step, so that the next token is due.
    """

    sequence: Sequence
    num_tokens: int
    is_sampled: bool
    draft_token_ids: tuple[int, ...] = field(default=(), repr=False)


def build_plan(rows: Rows[ScheduledRow], *, block_size: int) -> StepPlan:
    """The batch of these rows, in order; reads the sequences and changes nothing.

    A sampled row has 1 + (number of drafts) logits rows: after its last token and after each draft.
    """
    token_ids: list[int] = []
    logits_rows: list[int] = []
    ends: list[int] = []  # in the flat arrays
    context_lens: list[int] = []
    for row in rows:
        known, start = row.sequence.token_ids, row.sequence.num_computed_tokens
        stop = start + row.num_tokens
        token_ids += known[start:stop]
        if row.draft_token_ids:
            token_ids += row.draft_token_ids
        end = len(token_ids)
        ends.append(end)
        context_lens.append(stop + len(row.draft_token_ids))
        if row.is_sampled:
            logits_rows += range(end - 1 - len(row.draft_token_ids), end)
    query_starts = np.array([0, *ends], dtype=np.int32)
    context_array = np.array(context_lens, dtype=np.int32)
    tables = _block_tables(rows, context_lens, block_size)
    if len(token_ids) == len(rows):  # one token each, the most common step
        positions = context_array - np.int32(1)
        row_idx = query_starts[:-1]
    else:
        row_idx = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(query_starts))
        first_positions = context_array - query_starts[1:]  # position minus flat index, per row
        positions = np.arange(len(token_ids), dtype=np.int32) + first_positions[row_idx]
    block_idx, offset = np.divmod(positions, np.int32(block_size))
    slots = tables[row_idx, block_idx].astype(np.int64)
    slots *= block_size
    slots += offset
    return StepPlan(
        token_ids=np.array(token_ids, dtype=np.int32),
        positions=positions,
        query_starts=query_starts,
        context_lens=context_array,
        prompt_lens=np.array([row.sequence.num_prompt_tokens for row in rows], dtype=np.int32),
        batch_invariant=np.array([row.sequence.is_batch_invariant for row in rows], dtype=np.bool_),
        block_tables=tables,
        slot_mapping=slots,
        logits_rows=np.array(logits_rows, dtype=np.int32),
    )


def _block_tables(rows: Rows[ScheduledRow], context_lens: Rows[int], block_size: int) -> Int32Array:
    """(B, max blocks): as many blocks of each table as its context fills, then -1."""
    tables = np.full((len(rows), -(-max(context_lens) // block_size)), -1, dtype=np.int32)
    for b, row in enumerate(rows):
        num_blocks = -(-context_lens[b] // block_size)
        tables[b, :num_blocks] = row.sequence.block_table.ids[:num_blocks]
    return tables
