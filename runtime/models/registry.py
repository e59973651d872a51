"""Which architectures are there, by GGUF's ``general.architecture``?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from runtime.models.config import ModelConfig
from runtime.models.decoder import DecoderWeights, load_llama
from runtime.weights.errors import UnsupportedModelError
from runtime.weights.gguf import MetadataValue

if TYPE_CHECKING:
    from runtime.devices.base import Device
    from runtime.weights.source import TensorSource

WeightLoader: TypeAlias = "Callable[[ModelConfig, TensorSource, Device], DecoderWeights]"

ARCHITECTURES: Mapping[str, WeightLoader] = {"llama": load_llama}


def find_architecture(name: MetadataValue | None) -> WeightLoader:
    """The loader of ``name``'s weights. Raises: UnsupportedModelError."""
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedModelError(f"the architecture is not one of {sorted(ARCHITECTURES)}")
    return ARCHITECTURES[name]
