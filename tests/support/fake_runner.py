"""Which output must an engine give?  A runner whose "model" is a hash of its KV cache.

The key-value entry of a token is a hash of the token, its position and every earlier entry as read
back through the block table, and its logits are drawn from a hash of all entries. A wrong slot,
block, position or a stale shared block therefore changes the output. ``reference_tokens`` computes
the same from a plain list, without blocks.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from runtime.plan import Float32Array, StepPlan
from runtime.sampler import LogprobsWanted, SampleRow, TokenLogprobs, row_logprobs
from runtime.sampling import SamplingParams

Entries = npt.NDArray[np.uint64]

PIECES = ("", "a", "b", "c", "ab", "bc", "ca", "abc", " ", "cab", "é", "x")  # by token id
EOS_TOKEN_ID = 0
VOCAB_SIZE = len(PIECES)


class FakeDetokenizer:
    def push(self, token_id: int) -> str:
        return PIECES[token_id]

    def flush(self) -> str:
        return ""


class FakeTokenizer:
    eos_token_ids = frozenset({EOS_TOKEN_ID})

    def detokenizer(self) -> FakeDetokenizer:
        return FakeDetokenizer()


class FakeClock:
    """Advances by one nanosecond at each look."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns


class FakeRunner:
    """``runtime.interfaces.Runner`` over an array of hashes; keeps the plans it ran."""

    vocab_size = VOCAB_SIZE

    def __init__(
        self, *, num_blocks: int, block_size: int, max_context_tokens: int = 10_000
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_context_tokens = max_context_tokens
        self.plans: list[StepPlan] = []
        self.before_run: Callable[[StepPlan], None] = lambda _plan: None
        self._cache = np.random.default_rng(0).integers(
            1 << 63, size=(num_blocks, block_size), dtype=np.uint64
        )

    def run(self, plan: StepPlan) -> Float32Array:
        _require_well_formed(plan, self.block_size)
        self.before_run(plan)
        self.plans.append(plan)
        slots = self._cache.reshape(-1)
        entries_at: dict[int, Entries] = {}
        for b in range(plan.num_sequences):
            table = plan.block_tables[b][plan.block_tables[b] >= 0]
            for flat_idx in range(plan.query_starts[b], plan.query_starts[b + 1]):
                position = int(plan.positions[flat_idx])
                earlier = self._cache[table].reshape(-1)[:position]
                slots[plan.slot_mapping[flat_idx]] = _entry(
                    int(plan.token_ids[flat_idx]), position, earlier
                )
                entries_at[flat_idx] = self._cache[table].reshape(-1)[: position + 1]
        logits = [_logits(entries_at[int(row)]) for row in plan.logits_rows]
        return np.array(logits, dtype=np.float32).reshape(len(logits), VOCAB_SIZE)

    def scribble(self, plan: StepPlan) -> None:
        """What a run that breaks off leaves behind."""
        self._cache.reshape(-1)[plan.slot_mapping] = 0


class FakeSampler:
    """Greedy at temperature 0, else the Gumbel trick seeded by (seed, step)."""

    def sample(self, logits: Float32Array, rows: Sequence[SampleRow]) -> list[int]:
        return [_sample(logits[idx], row) for idx, row in enumerate(rows)]

    def logprobs(
        self, logits: Float32Array, wanted: Sequence[LogprobsWanted]
    ) -> list[TokenLogprobs]:
        return [row_logprobs(logits[one.row_idx], one) for one in wanted]


def reference_tokens(
    prompt: Iterable[int], sampling: SamplingParams, *, rng_seed: int, max_tokens: int
) -> list[int]:
    """The output of one request alone, ending after EOS or ``max_tokens``; no stop strings."""
    entries: list[int] = []
    tokens = list(prompt)
    num_prompt_tokens = len(tokens)
    while True:
        for position in range(len(entries), len(tokens)):
            earlier = np.array(entries, dtype=np.uint64)
            entries.append(_entry(tokens[position], position, earlier))
        row = SampleRow(params=sampling, rng_seed=rng_seed, step=len(tokens) - num_prompt_tokens)
        tokens.append(_sample(_logits(np.array(entries, dtype=np.uint64)), row))
        output = tokens[num_prompt_tokens:]
        if len(output) == max_tokens or (tokens[-1] == EOS_TOKEN_ID and not sampling.ignore_eos):
            return output


def _entry(token_id: int, position: int, earlier: Entries) -> int:
    digest = blake2b(f"{token_id},{position},".encode() + earlier.tobytes(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _logits(entries: Entries) -> Float32Array:
    digest = blake2b(entries.tobytes(), digest_size=2 * VOCAB_SIZE).digest()
    return np.frombuffer(digest, dtype="<u2").astype(np.float32) / np.float32(65536)


def _sample(logits: Float32Array, row: SampleRow) -> int:
    if row.params.temperature > 0:
        rng = np.random.default_rng([row.rng_seed, row.step])
        return int(np.argmax(logits / row.params.temperature + rng.gumbel(size=len(logits))))
    return int(np.argmax(logits))


def _require_well_formed(plan: StepPlan, block_size: int) -> None:
    """The shapes, ranges and redundancies that a real runner relies on."""
    assert plan.token_ids.shape == plan.positions.shape == plan.slot_mapping.shape
    assert plan.query_starts[0] == 0
    assert plan.query_starts[-1] == plan.num_tokens
    assert (np.diff(plan.query_starts) > 0).all()
    assert len(set(plan.slot_mapping.tolist())) == plan.num_tokens
    for b in range(plan.num_sequences):
        rows = slice(plan.query_starts[b], plan.query_starts[b + 1])
        end = plan.context_lens[b]
        assert plan.positions[rows].tolist() == list(range(end - rows.stop + rows.start, end))
        num_blocks = -(-end // block_size)
        assert (plan.block_tables[b, :num_blocks] >= 0).all()
        assert (plan.block_tables[b, num_blocks:] == -1).all()
        blocks = plan.block_tables[b][plan.positions[rows] // block_size]
        assert (plan.slot_mapping[rows] // block_size == blocks).all()
    dtypes = {array.dtype for array in (plan.token_ids, plan.positions, plan.query_starts)}
    dtypes |= {array.dtype for array in (plan.context_lens, plan.block_tables, plan.logits_rows)}
    assert dtypes == {np.dtype(np.int32)}
    assert plan.slot_mapping.dtype == np.int64
