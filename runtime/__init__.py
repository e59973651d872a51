"""How do I run a language model?  The engine's public surface; importing it loads no torch."""

from runtime.config import EngineConfig
from runtime.engine import Engine
from runtime.errors import (
    DuplicateRequest,
    EngineFull,
    InvalidConfig,
    InvalidGrammar,
    InvalidPrompt,
    InvalidSampling,
    InvariantBroken,
    ModelFileError,
    PromptTooLong,
    RequestRejected,
    RuntimeFault,
)
from runtime.grammar import GrammarCompiler, GrammarSpec
from runtime.interfaces import Runner, TextTokenizer, TokenSampler
from runtime.live import Advance, Delta
from runtime.observer import EngineObserver, NullObserver, ScheduleStats, StepStats
from runtime.plan import StepPlan
from runtime.sampler import TokenLogprobs
from runtime.sampling import SamplingParams
from runtime.sequence import FinishReason, GenerationRequest, SequenceTiming

__all__ = [
    "Advance",
    "Delta",
    "DuplicateRequest",
    "Engine",
    "EngineConfig",
    "EngineFull",
    "EngineObserver",
    "FinishReason",
    "GenerationRequest",
    "GrammarCompiler",
    "GrammarSpec",
    "InvalidConfig",
    "InvalidGrammar",
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
    "TokenLogprobs",
    "TokenSampler",
]
