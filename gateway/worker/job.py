"""What shall the engine do for one request, and who writes down what comes of it?"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from gateway.problems import GatewayError
from gateway.worker.obfuscation import Filler
from gateway.worker.outcome import Usage
from gateway.worker.spelling import TokenSpelling
from runtime import GrammarCompiler, GrammarSpec, SamplingParams, TokenLogprobs
from runtime.embedding import TextEmbedder


class ServiceTokenizer(Protocol):
    """The part of a tokenizer that prompts and log probabilities need."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def token_bytes(self) -> Sequence[bytes]: ...

    @property
    def writes_tool_calls(self) -> bool:
        """Whether the chat template offers tools itself."""
        ...

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime | None = None,
    ) -> list[int]:
        """``now`` is what a template's date shows. Raises: runtime.errors.InvalidPrompt."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """Raises: runtime.errors.InvalidPrompt."""
        ...

    def encode_document(self, text: str) -> list[int]:
        """Raises: runtime.errors.InvalidPrompt."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Raises: IndexError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One loaded model, as far as jobs are made of it."""

    name: str
    tokenizer: ServiceTokenizer
    max_context_tokens: int
    grammars: GrammarCompiler | None
    unix_s: Callable[[], float]
    filler: Filler
    embedder: TextEmbedder | None = None
    grammar_thread: Executor | None = None  # compiles grammars; None: the loop's own threads

    @property
    def spelling(self) -> TokenSpelling:
        return TokenSpelling(
            token_bytes=self.tokenizer.token_bytes, eos_token_ids=self.tokenizer.eos_token_ids
        )

    def require_name(self, name: str) -> None:
        """Raises: GatewayError `model_not_found`."""
        if name != self.name:
            raise GatewayError("model_not_found", "This model is not served here.", param="model")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAnswer:
    """One whole answer."""

    text: str = field(repr=False)
    reason: str
    logprobs: Sequence[TokenLogprobs] = field(repr=False)


class AnswerWriter(Protocol):
    """Writes the objects of one request's answers, whole or as the events of a stream.

    An answer is known by its index: those to the first prompt come first.
    """

    def start(self) -> bytes: ...

    def delta(self, index: int, text: str, logprobs: Sequence[TokenLogprobs]) -> bytes:
        """May be empty: text can be held back until it is known what it is."""
        ...

    def finish(self, index: int, reason: str) -> bytes: ...

    def end(self, usage: Usage) -> bytes: ...

    def error(self, error: GatewayError) -> bytes:
        """The last event of a stream that failed."""
        ...

    def whole(self, answers: Sequence[WrittenAnswer], usage: Usage) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``sampling`` makes an answer's parameters from the room that the context leaves it."""

    prompts: Sequence[tuple[int, ...]] = field(repr=False)
    prompt_param: str
    num_answers: int
    sampling: Callable[[int], SamplingParams]
    grammar: GrammarSpec | None
    is_streamed: bool
    is_held_whole: bool  # by whoever reads it: unstreamed, or repeated in the stream's last event
    writer: AnswerWriter
