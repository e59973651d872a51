"""What does one engine step compute?  Plain data from the Scheduler to the ModelRunner."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A ragged batch of B sequences with T scheduled tokens, prefill and decode alike.

    A sequence's row range in the flat arrays is ``query_starts[b]:query_starts[b + 1]``; its
    keys and values for positions ``0 .. context_lens[b] - 1`` lie in the blocks of
    ``block_tables[b]`` once this step has written its own. ``logits_rows`` names the flat rows
    whose logits are wanted, in the order of the output. Positions below ``prompt_lens[b]`` are the
    prompt's, those beyond generated or drafted: a runner may compute the ones otherwise than the
    others. How it computes a prompt's token depends on nothing else in the step, and where
    ``batch_invariant[b]`` how it computes a generated one does not either.
    """

    token_ids: Int32Array  # (T,)
    positions: Int32Array  # (T,)
    query_starts: Int32Array  # (B + 1,), starts at 0, ends at T
    context_lens: Int32Array  # (B,), computed tokens after this step
    prompt_lens: Int32Array  # (B,), tokens of the prompt, computed or not
    batch_invariant: BoolArray  # (B,)
    block_tables: Int32Array  # (B, max blocks), -1 where unused
    slot_mapping: Int64Array  # (T,), block id * block size + offset
    logits_rows: Int32Array  # (S,), indices into T

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.shape[0])

    @property
    def num_sequences(self) -> int:
        return int(self.context_lens.shape[0])
