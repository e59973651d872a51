"""How large may one engine's batches, queues and KV cache be?"""

from dataclasses import dataclass

from runtime.errors import InvalidConfig
from runtime.kvcache.eviction import EVICTION_POLICIES

MAX_BLOCK_SIZE = 256
MAX_BLOCKS = 2**31 // MAX_BLOCK_SIZE  # a block id fits int32, a slot fits int64 with room to spare


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Bounds of one engine. ``num_blocks`` and ``block_size`` are the runner's own.

    ``max_batch_tokens`` exceeds ``max_sequences``, so that in every step each decoding sequence
    advances and a prefill still gets at least one token. ``model_sha256`` (hex, of the weights
    file) is part of every prefix cache key.

    Raises: InvalidConfig, naming every problem at once.
    """

    num_blocks: int
    block_size: int = 16
    max_batch_tokens: int = 512
    max_sequences: int = 64
    max_waiting: int = 256
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
            f"eviction must be one of {', '.join(sorted(EVICTION_POLICIES))}": (
                self.eviction in EVICTION_POLICIES
            ),
        }
        if problems := [problem for problem, is_met in checks.items() if not is_met]:
            raise InvalidConfig("; ".join(problems))
