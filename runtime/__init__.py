"""How do I run a language model?  The engine's public surface; importing it loads no torch."""

from runtime.config import EngineConfig
from runtime.engine import Delta, Engine
from runtime.errors import (
    DuplicateRequest,
    EngineFull,
    InvalidConfig,
    InvalidPrompt,
    InvalidSampling,
    InvariantBroken,
    ModelFileError,
    PromptTooLong,
    RequestRejected,
    RuntimeFault,
)
from runtime.interfaces import Runner, TextTokenizer, TokenSampler
from runtime.observer import EngineObserver, NullObserver, ScheduleStats, StepStats
from runtime.plan import StepPlan
from runtime.sampling import SamplingParams
from runtime.sequence import FinishReason, GenerationRequest, SequenceTiming

__all__ = [
    "Delta",
    "DuplicateRequest",
    "Engine",
    "EngineConfig",
    "EngineFull",
    "EngineObserver",
    "FinishReason",
    "GenerationRequest",
    "InvalidConfig",
    "InvalidPrompt",
    "InvalidSampling",
    "InvariantBroken",
    "ModelFileError",
    "NullObserver",
    "PromptTooLong",
    "RequestRejected",
    "Runner",
    "RuntimeFault",
    "SamplingParams",
    "ScheduleStats",
    "SequenceTiming",
    "StepPlan",
    "StepStats",
    "TextTokenizer",
    "TokenSampler",
]
