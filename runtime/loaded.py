"""What is known of a loaded model, whatever computes it?  Read, hashed and packed in one go."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from runtime.checkpoint import Progress, open_checkpoint
from runtime.models.config import ModelConfig
from runtime.tokenizer import Tokenizer
from runtime.weights.source import TensorSource

WeightsT = TypeVar("WeightsT")

_HASH_RATIO = 0.25  # of the loading time, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[WeightsT]):
    """``weights`` are a runner's own kind."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    weights_sha256: str  # see Checkpoint.sha256, hex
    weights: WeightsT


def load_weights(
    path: Path,
    pack: Callable[[ModelConfig, TensorSource], WeightsT],
    *,
    quantize: str,
    on_progress: Progress | None,
) -> Loaded[WeightsT]:
    """A GGUF file or a safetensors folder; ``pack`` takes every tensor and keeps none.

    ``quantize`` none, int8 or int4: see Checkpoint.source. ``on_progress`` hears a ratio, 0 to 1.

    Raises: runtime.errors.ModelFileError, InvalidConfig, OSError.
    """
    report = on_progress or (lambda ratio: None)
    with open_checkpoint(path) as checkpoint:
        tokenizer = checkpoint.tokenizer()
        config = checkpoint.config_for(tokenizer.vocab_size)
        weights_sha256 = checkpoint.sha256(lambda ratio: report(_HASH_RATIO * ratio))
        source = checkpoint.source(
            config,
            lambda ratio: report(_HASH_RATIO + (1 - _HASH_RATIO) * ratio),
            quantize=quantize,
        )
        weights = pack(config, source)
        del source
    return Loaded(
        name=checkpoint.name,
        config=config,
        tokenizer=tokenizer,
        weights_sha256=weights_sha256,
        weights=weights,
    )
