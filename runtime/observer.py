"""What did one engine step do?  Facts for whoever wants to draw or export them."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStats:
    """What the scheduler decided in one step, and why others wait.

    Prompts are counted once, in the step that first admits them: ``num_prompt_tokens`` is their
    length and ``num_cached_tokens`` the part found in the prefix cache, of which
    ``num_deduped_tokens`` were computed for another request after this one had come. The four
    ``num_waiting_for_*`` add up to the queue.
    """

    num_decode_tokens: int = 0  # one a sequence, and drafts
    num_draft_tokens: int = 0
    num_prefill_tokens: int = 0
    max_prefill_tokens: int = 0  # what the budget of time and tokens allowed at most
    predicted_s: float = 0.0  # the cost model's guess at the step's time
    num_preempted: int = 0
    num_admitted: int = 0
    num_resumed: int = 0  # admitted again after a preemption
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_deduped_tokens: int = 0
    num_merged_blocks: int = 0  # computed twice, kept once; since the step before
    num_waiting_for_prefix: int = 0  # that a running request computes
    num_waiting_for_tokens: int = 0  # of the step's budget
    num_waiting_for_sequences: int = 0  # at most ``max_sequences`` run
    num_waiting_for_blocks: int = 0  # now, or at the expected peak
    num_aged: int = 0  # waiting and ahead of all others, since they were overtaken often


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """Counts of one step and the engine's state after it; times are on the engine's clock.

    ``error_type`` is the class name of what the runner or the sampler raised, the code of
    ``NonFiniteLogitsError`` where a row had no token for that, else None.
    """

    step_idx: int
    started_ns: int
    ended_ns: int
    num_batch_tokens: int
    num_batch_sequences: int
    num_sampled_tokens: int  # that became output, accepted drafts among them
    num_drafted_tokens: int
    num_accepted_tokens: int  # drafts that were right
    grammar_ns: int  # computing masks, beside the run
    num_preempted: int
    num_finished: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_cached_blocks: int
    num_used_blocks: int
    error_type: str | None
    schedule: ScheduleStats = ScheduleStats()


class EngineObserver(Protocol):
    """Called on the engine's thread after each step that ran; must be quick and must not raise."""

    def on_step(self, stats: StepStats) -> None: ...


class NullObserver:
    """Looks away."""

    def on_step(self, stats: StepStats) -> None:
        pass
