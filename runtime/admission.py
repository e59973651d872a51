"""Do the blocks last if this sequence starts now?  The exact peak of the future, not a watermark.

Every decoding sequence grows by a token a step and gives its blocks back when it ends, so the most
blocks ever held are held at the moment some sequence ends: the peak is the largest of those
moments' sums [LightLLM's "past-future" scheduler, Gong et al., ASPLOS 2025, computes it in tokens;
here it is in blocks, and a shared block counts once, until its last holder ends].

How long an output will be is not known: it is taken from a decayed history of outputs, at a
quantile, given how long it is already, and never above the request's own bound.
"""

from bisect import bisect_left
from collections.abc import Sequence as Rows
from typing import Final

import numpy as np

from runtime.plan import Int32Array, Int64Array
from runtime.sequence import Sequence

_BUCKETS_PER_OCTAVE: Final = 4
_NUM_BUCKETS: Final = 21 * _BUCKETS_PER_OCTAVE  # up to a million tokens
_DECAY: Final = 0.995  # a finished request: about the last 200 count
_PRIOR_TOKENS: Final = 512  # an answer's length before any was seen
_PRIOR_WEIGHT: Final = 4.0
_MAX_DOUBLINGS: Final = 20
_MIN_WEIGHT: Final = 0.5  # below it nothing is known


class OutputHistory:
    """How long are outputs?  A histogram in quarter octaves that forgets."""

    def __init__(self, *, quantile: float) -> None:
        """``quantile`` 1 expects outputs as long as requests allow, 0 that they end at once."""
        self._quantile = quantile
        self._uppers = [2.0 ** (idx / _BUCKETS_PER_OCTAVE) for idx in range(_NUM_BUCKETS)]
        self._weights = np.zeros(_NUM_BUCKETS)
        self._weights[self._bucket(_PRIOR_TOKENS)] = _PRIOR_WEIGHT
        self._totals: list[int] = []  # expected length by the bucket of what is done already

    def record(self, num_output_tokens: int) -> None:
        """A sequence ended, for whatever reason, after this many tokens."""
        self._weights *= _DECAY
        self._weights[self._bucket(num_output_tokens)] += 1.0
        self._totals = []

    def expected_tokens(self, sequence: Sequence) -> int:
        """How many more tokens the sequence is taken to generate, at least 1.

        One that was preempted, because outputs were longer than expected, is taken to double its
        output, and with each further time to double that.
        """
        done = sequence.num_output_tokens
        bound = max(1, sequence.max_output_tokens - done)
        if self._quantile >= 1:
            return bound
        more = 1
        if self._quantile > 0:
            more = (self._expected_totals()[self._bucket(done)] or 2 * done) - done
        if sequence.num_preemptions:
            more = max(more, done << min(sequence.num_preemptions - 1, _MAX_DOUBLINGS))
        return min(bound, max(1, more))

    def _bucket(self, num_tokens: int) -> int:
        return min(bisect_left(self._uppers, num_tokens), _NUM_BUCKETS - 1)

    def _expected_totals(self) -> list[int]:
        """By bucket: the quantile of the outputs at least that long; 0 where none is known."""
        if not self._totals:
            cumulated = np.cumsum(self._weights)
            shorter = cumulated - self._weights
            known = cumulated[-1] - shorter
            idx = np.searchsorted(cumulated, shorter + self._quantile * known)
            self._totals = [
                int(self._uppers[min(i, _NUM_BUCKETS - 1)]) if weight >= _MIN_WEIGHT else 0
                for i, weight in zip(idx.tolist(), known.tolist(), strict=True)
            ]
        return self._totals


def peak_blocks(
    *,
    num_tokens: Int64Array,
    num_blocks: Int64Array,
    num_owned: Int64Array,
    remaining: Int64Array,
    delay: Int64Array,
    block_size: int,
) -> int:
    """The most blocks held at once until all of B sequences have ended.

    All arguments are (B,) but ``block_size``: tokens known (each has a block now), blocks in the
    table, those of them that are freed when the sequence ends, tokens still to be generated
    (>= 1), and steps until it generates the first. The last token generated is never stored.
    """
    ends = remaining + delay
    order = np.argsort(-ends)
    ends = ends[order]
    stored = num_tokens[order] + np.minimum(remaining[order], ends[:, None]) - 1  # (moment, B)
    grown = np.maximum(-(-stored // block_size) - num_blocks[order], 0)
    held = np.cumsum(grown + num_owned[order], axis=1)
    # At the moment the k-th longest ends, it and the longer ones are there.
    last_of_equals = np.searchsorted(-ends, -ends, side="right") - 1
    return int(held[np.arange(len(ends)), last_of_equals].max())


def owned_blocks(tables: Rows[Int32Array], ends: Int64Array, *, pool_blocks: int) -> Int64Array:
    """(B,) how many blocks are freed when each table's holder ends: a shared one by the last."""
    owner = np.full(pool_blocks, len(tables), dtype=np.int64)
    for b in np.argsort(ends, kind="stable").tolist():
        owner[tables[b]] = b
    return np.bincount(owner, minlength=len(tables) + 1)[:-1].astype(np.int64)


class Admission:
    """Whether one more sequence fits beside the running ones, now and later."""

    def __init__(self, *, num_blocks: int, block_size: int, output_quantile: float) -> None:
        self._num_blocks = num_blocks
        self._block_size = block_size
        self.history = OutputHistory(quantile=output_quantile)

    def fits(
        self,
        candidate: Sequence,
        running: Rows[Sequence],
        *,
        cached_ids: Rows[int],
        num_used_then: int,
        tokens_per_step: float,
    ) -> bool:
        """Whether the blocks last to everybody's expected end.

        ``cached_ids`` are the blocks the candidate takes from the cache, ``num_used_then`` how
        many are held once it has all of its own, ``tokens_per_step`` is the pace of prefills.
        1. If all can be at their ends at once, yes. 2. Otherwise the peak decides.
        """
        size = self._block_size
        everyone = [*running, candidate]
        remaining = [self.history.expected_tokens(sequence) for sequence in everyone]
        num_blocks = [len(sequence.block_table) for sequence in running]
        num_blocks.append(-(-len(candidate.token_ids) // size))
        at_once = num_used_then  # 1
        for sequence, num_more, num_held in zip(everyone, remaining, num_blocks, strict=True):
            at_once += max(0, -(-(len(sequence.token_ids) + num_more - 1) // size) - num_held)
        if at_once <= self._num_blocks:
            return True
        uncomputed = [sequence.num_uncomputed_tokens - 1 for sequence in running]  # 2
        uncomputed.append(len(candidate.token_ids) - len(cached_ids) * size - 1)
        backlog_steps = -int(-sum(uncomputed) // max(1.0, tokens_per_step))
        delay = np.array([backlog_steps if left > 0 else 0 for left in uncomputed], dtype=np.int64)
        ends = np.array(remaining, dtype=np.int64) + delay
        tables = [sequence.block_table.ids for sequence in running]
        tables.append(np.array(cached_ids, dtype=np.int32))
        owned = owned_blocks(tables, ends, pool_blocks=self._num_blocks)
        owned[-1] += num_blocks[-1] - len(cached_ids)
        peak = peak_blocks(
            num_tokens=np.array([len(one.token_ids) for one in everyone], dtype=np.int64),
            num_blocks=np.array(num_blocks, dtype=np.int64),
            num_owned=owned,
            remaining=np.array(remaining, dtype=np.int64),
            delay=delay,
            block_size=size,
        )
        return peak <= self._num_blocks
