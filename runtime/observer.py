"""What did one engine step do?  Facts for whoever wants to draw or export them."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """Counts of one step and the engine's state after it; times are on the engine's clock.

    ``error_type`` is the class name of what the runner or the sampler raised, else None.
    """

    step_idx: int
    started_ns: int
    ended_ns: int
    num_batch_tokens: int
    num_batch_sequences: int
    num_sampled_tokens: int
    num_preempted: int
    num_finished: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_cached_blocks: int
    num_used_blocks: int
    error_type: str | None


class EngineObserver(Protocol):
    """Called on the engine's thread after each step that ran; must be quick and must not raise."""

    def on_step(self, stats: StepStats) -> None: ...


class NullObserver:
    """Looks away."""

    def on_step(self, stats: StepStats) -> None:
        pass
