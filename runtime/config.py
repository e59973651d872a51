"""How large may one engine's batches, queues and KV cache be?"""

from dataclasses import dataclass

from runtime.errors import InvalidConfig
from runtime.kvcache.eviction import EVICTION_POLICIES

MAX_BLOCK_SIZE = 256
MAX_DRAFT_TOKENS = 32
MAX_BLOCKS = 2**31 // MAX_BLOCK_SIZE  # a block id fits int32, a slot fits int64 with room to spare


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Bounds of one engine. ``num_blocks`` and ``block_size`` are the runner's own.

    ``max_batch_tokens`` exceeds ``max_sequences``, so that in every step each decoding sequence
    advances and a prefill still gets at least one token. ``model_sha256`` (hex, of the weights
    file) is part of every prefix cache key.

    A step with prompts in it, while others decode, takes up to ``itl_target_s``, and for each
    prompt up to ``itl_stretch`` times what it takes without them; ``min_prefill_tokens`` are
    computed all the same. A sequence starts if the blocks last for outputs at ``output_quantile``
    of the recent ones (1: at each request's own bound, 0: of one token more). At most
    ``max_overtakes`` later requests start before an earlier one, besides those that start while it
    waits for a prefix another computes, at most ``max_prefix_wait_steps`` steps. An eighth of the
    ``max_waiting`` places in the queue is kept for tenants who hold fewer.

    A sequence gets up to ``max_draft_tokens`` drafts a step (0: no speculation) while the decoding
    sequences and all their drafts are at most ``max_draft_rows``: about the number of rows from
    which on each costs its full share of a step. The output is the same for any values
    (with ``batch_invariant`` and a seed to the last bit).

    With ``batch_invariant`` only a runner is taken that can promise (``is_batch_invariant``) the
    same logits for a token, bit by bit, whatever else the step computes and however its prompt was
    cut: then a request's output is a function of itself alone, greedy ties and near-ties included.
    Without it that holds, with such a runner, for requests that bring a seed; others may be
    computed in another way where there are many.

    Raises: InvalidConfig, naming every problem at once.
    """

    num_blocks: int
    block_size: int = 16
    max_batch_tokens: int = 512
    max_sequences: int = 64
    max_waiting: int = 256
    itl_target_s: float = 0.12
    itl_stretch: float = 2.2
    min_prefill_tokens: int = 8
    output_quantile: float = 0.9
    max_overtakes: int = 32
    max_prefix_wait_steps: int = 256
    max_draft_tokens: int = 0
    max_draft_rows: int = 8
    batch_invariant: bool = False
    prefix_cache: bool = True
    eviction: str = "lru"
    model_sha256: str = ""

    def __post_init__(self) -> None:
        checks = {
            f"block_size must be 1 to {MAX_BLOCK_SIZE}": 1 <= self.block_size <= MAX_BLOCK_SIZE,
            f"num_blocks must be 1 to {MAX_BLOCKS}": 1 <= self.num_blocks <= MAX_BLOCKS,
            "max_sequences must be at least 1": self.max_sequences >= 1,
            "max_batch_tokens must exceed max_sequences": (
                self.max_batch_tokens > self.max_sequences
            ),
            "max_waiting must be at least 1": self.max_waiting >= 1,
            "itl_target_s must be above 0": self.itl_target_s > 0,
            "itl_stretch must be at least 1": self.itl_stretch >= 1,
            "min_prefill_tokens must be at least 1": self.min_prefill_tokens >= 1,
            "output_quantile must be 0 to 1": 0 <= self.output_quantile <= 1,
            "max_overtakes must be at least 1": self.max_overtakes >= 1,
            "max_prefix_wait_steps must be at least 0": self.max_prefix_wait_steps >= 0,
            f"max_draft_tokens must be 0 to {MAX_DRAFT_TOKENS}": (
                0 <= self.max_draft_tokens <= MAX_DRAFT_TOKENS
            ),
            "max_draft_rows must be at least 2": self.max_draft_rows >= 2,
            f"eviction must be one of {', '.join(sorted(EVICTION_POLICIES))}": (
                self.eviction in EVICTION_POLICIES
            ),
        }
        if problems := [problem for problem, is_met in checks.items() if not is_met]:
            raise InvalidConfig("; ".join(problems))
