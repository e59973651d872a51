"""Which waiting sequence may start now?

In the order of ``runtime.waiting_queue``, a sequence starts when its blocks are there and last
(``runtime.admission``); one whose blocks do not last holds up all that are behind it. Where a
running sequence computes a worthwhile part of its prompt just now, it waits for that instead, holds
up nobody, and finds the blocks in the cache: a new prefix of many requests is computed once. The
wait ends when the block is there, when its leader stops running, or after so many steps.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from runtime.admission import Admission
from runtime.config import EngineConfig
from runtime.errors import InvariantBroken
from runtime.kvcache.manager import KVCacheManager, Probe
from runtime.sequence import Sequence
from runtime.waiting_queue import TenantCounters, WaitingQueue

_KEPT_SHARE: Final = 8  # one in so many places in the queue is kept for tenants who hold fewer
_MAX_PARTIAL_PREFILLS: Final = 8  # prompts in progress that a shorter one may still overtake
_LOOK_AHEAD: Final = 16  # waiting sequences looked at beyond the first, in one admission
_RECHECK_STEPS: Final = 4  # between two looks at a sequence whose blocks would not last
_TOUCH_STEPS: Final = 8  # between two looks at which cached blocks the queue is going to want
_MIN_AWAITED_RATIO: Final = 0.25  # of a prompt: less is sooner computed than waited for
_MIN_AWAITED_TOKENS: Final = 256  # or this many

Blocker = Literal["tokens", "sequences", "blocks"]


@dataclass(slots=True)
class EntranceCounts:
    """What happened in one step; a prompt is counted once, when it first starts."""

    num_admitted: int = 0
    num_resumed: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_deduped_tokens: int = 0
    blocker: Blocker = "tokens"


class Entrance:
    """The waiting sequences and the rules by which they leave."""

    def __init__(self, config: EngineConfig, kv: KVCacheManager) -> None:
        self._config = config
        self._kv = kv
        self._waiting = WaitingQueue(TenantCounters(), max_overtakes=config.max_overtakes)
        self._awaiting: dict[Sequence, None] = {}  # those of the queue that wait for a prefix
        self._admission = Admission(
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            output_quantile=config.output_quantile,
        )
        self._num_added = 0
        self._num_steps = 0
        self._recheck_at = 0  # the step until which the next one is known to lack blocks
        self.counts = EntranceCounts()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def num_awaiting(self) -> int:
        return len(self._awaiting)

    @property
    def num_aged(self) -> int:
        return self._waiting.num_aged

    def has_room(self, tenant: str) -> bool:
        """Whether one more may wait; the last places are for tenants who hold few."""
        num_kept = self._config.max_waiting // _KEPT_SHARE
        num_free = self._config.max_waiting - len(self._waiting)
        return num_free > num_kept or (num_free > 0 and self._waiting.num_of(tenant) < num_kept)

    def add(self, sequence: Sequence) -> None:
        """A new sequence, younger than all others."""
        sequence.arrival_idx = self._num_added
        self._num_added += 1
        self._waiting.tenants.enter(sequence.request.tenant)
        self._waiting.add(sequence)
        sequence.num_tokens_at_hand = self._kv.touch(sequence)
        self._recheck_at = 0

    def put_back(self, sequence: Sequence) -> None:
        """A sequence that was preempted."""
        self._waiting.add(sequence)
        self._recheck_at = 0

    def remove(self, sequence: Sequence) -> None:
        """A waiting sequence gave up."""
        self._leave_queue(sequence)
        self._waiting.tenants.leave(sequence.request.tenant)
        self._recheck_at = 0

    def forget(self, sequence: Sequence) -> None:
        """A running sequence ended."""
        self._admission.history.record(sequence.num_output_tokens)
        self._waiting.tenants.leave(sequence.request.tenant)
        self._recheck_at = 0

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        """Its tenant was served so many output tokens."""
        self._waiting.tenants.charge(sequence.request.tenant, num_tokens)

    def start_step(self, *, num_soon: int) -> None:
        """End waits that have become pointless or too long, and keep wanted blocks cached.

        ``num_soon``: blocks that may be taken until this looks again.
        """
        self.counts = EntranceCounts()
        self._num_steps += 1
        for sequence in tuple(self._awaiting):
            sequence.num_steps_awaited += 1
            key = sequence.awaited_key
            is_too_long = sequence.num_steps_awaited >= self._config.max_prefix_wait_steps
            if is_too_long or key is None or key not in self._kv.in_flight:
                self._stop_awaiting(sequence)
        is_due = self._num_steps % _TOUCH_STEPS == 0 and len(self._waiting) > 0
        if is_due and self._kv.pool.num_free < num_soon * _TOUCH_STEPS:
            for sequence in reversed([*islice(self._waiting.candidates(), _LOOK_AHEAD)]):
                self._kv.touch(sequence)

    def admit_next(
        self,
        running: Rows[Sequence],
        *,
        before: tuple[int, int, int] | None,
        num_partial: int,
        pace: float,
    ) -> Sequence | None:
        """Start the next sequence, if it is more urgent than ``before``, a prompt in progress.

        ``num_partial``: prompts in progress; ``pace``: prompt tokens a step. None when there is
        none or the next one has to wait.
        """
        self.counts.blocker = "tokens"
        if not self._waiting:
            return None
        if len(running) >= self._config.max_sequences:
            self.counts.blocker = "sequences"
            return None
        if self._num_steps < self._recheck_at and running:
            self.counts.blocker = "blocks"
            return None
        num_passed = 0
        for candidate in self._waiting.candidates():
            if candidate.awaited_key is not None:
                continue
            probe = self._kv.probe(candidate)
            if before is not None and not candidate.is_aged:
                if num_partial >= _MAX_PARTIAL_PREFILLS or num_passed >= _LOOK_AHEAD:
                    return None
                if urgency(candidate, self._num_missing(candidate, probe)) > before:
                    num_passed += 1
                    continue
            if self._should_await(candidate, probe):
                self._await(candidate, probe)
                continue
            if not self._fits(candidate, probe, running, pace):
                self._recheck_at = self._num_steps + _RECHECK_STEPS
                self.counts.blocker = "blocks"
                return None
            self._start(candidate, probe)
            return candidate
        return None

    def _num_missing(self, candidate: Sequence, probe: Probe) -> int:
        return candidate.num_tokens - len(probe.cached_ids) * self._config.block_size

    def _fits(
        self, candidate: Sequence, probe: Probe, running: Rows[Sequence], pace: float
    ) -> bool:
        """Whether its blocks are there now and last; when nothing runs, now is enough."""
        if not probe.fits_now or not running:
            return probe.fits_now
        return self._admission.fits(
            candidate,
            running,
            cached_ids=probe.cached_ids,
            num_used_then=probe.num_used_then,
            tokens_per_step=pace,
        )

    def _start(self, sequence: Sequence, probe: Probe) -> None:
        """One look-up a request is counted: a resumed one finds its own blocks, no hit."""
        self._leave_queue(sequence)
        self._waiting.count_overtakes(sequence)
        num_cached = self._kv.admit(sequence, probe)
        counts = self.counts
        if sequence.num_preemptions:
            counts.num_resumed += 1
        else:
            counts.num_admitted += 1
            counts.num_prompt_tokens += sequence.num_tokens
            counts.num_cached_tokens += num_cached
            counts.num_deduped_tokens += max(0, num_cached - sequence.num_tokens_at_hand)
            self.charge(sequence, sequence.num_tokens - num_cached)
        sequence.start(num_cached_tokens=num_cached)

    def _should_await(self, candidate: Sequence, probe: Probe) -> bool:
        num_awaited = probe.num_awaited_blocks * self._config.block_size
        if not num_awaited or candidate.num_steps_awaited >= self._config.max_prefix_wait_steps:
            return False
        ratio = num_awaited / self._num_missing(candidate, probe)
        return ratio >= _MIN_AWAITED_RATIO or num_awaited >= _MIN_AWAITED_TOKENS

    def _await(self, sequence: Sequence, probe: Probe) -> None:
        """The leader becomes as urgent as the most urgent of those that wait for it."""
        if probe.leader is None:
            raise InvariantBroken("await: nobody computes the prefix")
        sequence.awaited_key = probe.last_awaited_key
        self._awaiting[sequence] = None
        probe.leader.prefill_priority = max(
            probe.leader.prefill_priority, sequence.request.priority
        )

    def _stop_awaiting(self, sequence: Sequence) -> None:
        sequence.awaited_key = None
        self._awaiting.pop(sequence, None)

    def _leave_queue(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)
        self._stop_awaiting(sequence)


def urgency(sequence: Sequence, num_left: int) -> tuple[int, int, int]:
    """Lower goes first: by priority, then the fewest tokens left, then the oldest."""
    return (-sequence.prefill_priority, num_left, sequence.arrival_idx)
