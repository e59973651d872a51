"""What is one request to the engine, and how far has it come?"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

import numpy as np

from runtime.errors import InvalidPrompt, InvariantBroken, RequestRejected
from runtime.grammar import GrammarSpec
from runtime.kvcache.keys import BlockKey
from runtime.plan import Int32Array
from runtime.sampling import SEED_BITS, SamplingParams

FinishReason: TypeAlias = Literal["stop", "length", "abort", "error", "grammar_failed"]

MIN_PRIORITY, MAX_PRIORITY = -2, 2
MAX_TENANT_CHARS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A tokenized prompt and what to do with it.

    ``arrival_ns`` is on the engine's own monotonic clock. Requests share cached prefixes only with
    an equal ``cache_salt``: one tenant cannot learn by timing what another has asked. Requests of
    a higher ``priority`` go first; among equals the ``tenant``s, opaque names, take turns.

    Raises: InvalidPrompt when the prompt is empty, RequestRejected for a priority or a tenant out
    of bounds.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...] = field(repr=False)
    sampling: SamplingParams
    arrival_ns: int
    grammar: GrammarSpec | None = None
    cache_salt: bytes = field(default=b"", repr=False)
    priority: int = 0
    tenant: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise InvalidPrompt("the prompt has no tokens", param="messages")
        if not MIN_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise RequestRejected(
                f"priority must be {MIN_PRIORITY} to {MAX_PRIORITY}", param="priority"
            )
        if len(self.tenant) > MAX_TENANT_CHARS:
            raise RequestRejected(f"tenant has more than {MAX_TENANT_CHARS} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTiming:
    """When one request reached each stage, on the engine's clock; None where it never did.

    ``cached_tokens`` counts prompt tokens found in the prefix cache when the request first ran.
    """

    queued_ns: int
    first_scheduled_ns: int | None
    first_token_ns: int | None
    finished_ns: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class BlockTable:
    """The KV cache blocks of one sequence, in token order; grows at the tail only."""

    __slots__ = ("_ids", "_num_blocks")

    def __init__(self) -> None:
        self._ids: Int32Array = np.empty(8, dtype=np.int32)
        self._num_blocks = 0

    def __len__(self) -> int:
        return self._num_blocks

    @property
    def ids(self) -> Int32Array:
        """A view, valid until the next append."""
        return self._ids[: self._num_blocks]

    def append(self, block_id: int) -> None:
        if self._num_blocks == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
        self._ids[self._num_blocks] = block_id
        self._num_blocks += 1

    def take_all(self) -> list[int]:
        """Empty the table; the caller now owns the references, in token order."""
        block_ids: list[int] = self.ids.tolist()
        self._num_blocks = 0
        return block_ids


class SequenceStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


_TRANSITIONS = {
    SequenceStatus.WAITING: {SequenceStatus.RUNNING, SequenceStatus.FINISHED},
    SequenceStatus.RUNNING: {SequenceStatus.WAITING, SequenceStatus.FINISHED},
    SequenceStatus.FINISHED: set[SequenceStatus](),
}


class Sequence:
    """One request in flight: its tokens so far and how many of them lie in the KV cache.

    There is no prefill and no decode phase: a step computes some of the tokens that are not yet
    computed, and once none is left the last one's logits give the next token.
    """

    __slots__ = (
        "arrival_idx",
        "awaited_key",
        "block_keys",
        "block_table",
        "cached_tokens",
        "draft_token_ids",
        "first_scheduled_ns",
        "first_token_ns",
        "is_aged",
        "is_batch_invariant",
        "max_output_tokens",
        "num_computed_tokens",
        "num_overtakes",
        "num_preemptions",
        "num_steps_awaited",
        "num_tokens_at_hand",
        "prefill_priority",
        "request",
        "rng_seed",
        "status",
        "token_ids",
    )

    def __init__(
        self,
        request: GenerationRequest,
        *,
        rng_seed: int,
        max_output_tokens: int,
        is_batch_invariant: bool = True,
    ) -> None:
        self.request = request
        self.rng_seed = rng_seed & ((1 << SEED_BITS) - 1)
        self.max_output_tokens = max_output_tokens
        self.is_batch_invariant = is_batch_invariant  # its tokens depend on no other sequence
        self.status = SequenceStatus.WAITING
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_computed_tokens = 0
        self.draft_token_ids: tuple[int, ...] = ()  # guesses for the next step, which takes them
        self.block_table = BlockTable()
        self.block_keys: list[BlockKey] = []  # of the leading full blocks, as far as asked for
        self.cached_tokens: int | None = None  # None until it first ran
        self.first_scheduled_ns: int | None = None
        self.first_token_ns: int | None = None
        self.arrival_idx = 0  # the scheduler's own, from here on
        self.prefill_priority = request.priority  # raised by those who wait for its blocks
        self.is_aged = False  # waited long enough: goes before all that came later
        self.num_overtakes = 0  # later sequences that were admitted before it
        self.num_preemptions = 0
        self.awaited_key: BlockKey | None = None  # of a block that another computes for it
        self.num_steps_awaited = 0
        self.num_tokens_at_hand = 0  # cached when it arrived

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request.request_id!r}, {self.status.value}, "
            f"computed {self.num_computed_tokens} of {self.num_tokens})"
        )

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Lower goes first, and gives up its blocks last."""
        return (not self.is_aged, -self.request.priority, self.arrival_idx)

    def start(self, *, num_cached_tokens: int) -> None:
        """Waiting -> running, with its first ``num_cached_tokens`` tokens already computed."""
        self._move(SequenceStatus.RUNNING)
        self.num_computed_tokens = num_cached_tokens
        if self.cached_tokens is None:
            self.cached_tokens = num_cached_tokens

    def preempt(self) -> None:
        """Running -> waiting; what was computed is lost, what was generated is kept."""
        self._move(SequenceStatus.WAITING)
        self.num_computed_tokens = 0
        self.draft_token_ids = ()
        self.num_preemptions += 1

    def finish(self) -> None:
        self._move(SequenceStatus.FINISHED)

    def timing(self, *, finished_ns: int) -> SequenceTiming:
        return SequenceTiming(
            queued_ns=self.request.arrival_ns,
            first_scheduled_ns=self.first_scheduled_ns,
            first_token_ns=self.first_token_ns,
            finished_ns=finished_ns,
            prompt_tokens=len(self.request.prompt_token_ids),
            cached_tokens=self.cached_tokens or 0,
            output_tokens=self.num_output_tokens,
        )

    def _move(self, status: SequenceStatus) -> None:
        if status not in _TRANSITIONS[self.status]:
            raise InvariantBroken(f"no transition {self.status.value} -> {status.value}")
        self.status = status
