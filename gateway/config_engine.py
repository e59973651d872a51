"""What may the inference engine use?"""

from dataclasses import dataclass
from typing import Annotated

from gateway import config_rules as rules
from gateway.config_sources import Key

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Budgets of the inference engine."""

    block_size: Annotated[
        int, Key("Tokens in one key-value cache block.", rules.between(1, 256))
    ] = 16
    kv_cache_bytes: Annotated[
        int, Key("Memory for the key-value cache.", rules.between(_MIB, 1024 * 1024 * _MIB))
    ] = 512 * _MIB
    max_batch_tokens: Annotated[
        int, Key("Tokens computed in one step.", rules.between(1, 65_536))
    ] = 512
    max_sequences: Annotated[
        int, Key("Sequences computed in one step.", rules.between(1, 4096))
    ] = 64
    itl_target_ms: Annotated[
        int,
        Key(
            "Longest a step may take on account of prompts while answers are being streamed.",
            rules.between(1, 60_000),
        ),
    ] = 120
    batch_invariant: Annotated[
        bool,
        Key(
            "Whether every answer is to the last bit the same whatever else is computed with it, "
            "as it always is for requests with a seed. Without it many streams are faster."
        ),
    ] = False
    max_draft_tokens: Annotated[
        int,
        Key(
            "Most tokens guessed at once for one sequence and checked in its next step; 0 is off. "
            "No answer depends on it, but by rounding where answers depend on company.",
            rules.between(0, 32),
        ),
    ] = 7
    max_draft_rows: Annotated[
        int,
        Key(
            "Guesses are made while the sequences that decode and all their guesses are no more.",
            rules.between(2, 4096),
        ),
    ] = 8
    max_context_tokens: Annotated[
        int,
        Key(
            "Longest prompt plus answer; 0 takes the model's own limit.",
            rules.between(0, 1_048_576),
        ),
    ] = 0
