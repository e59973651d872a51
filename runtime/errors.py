"""What can go wrong inside the engine, and under which stable code?

::

    RuntimeFault                     internal_error
    ├── RequestRejected              invalid_value             nothing was enqueued
    │   ├── InvalidSampling          invalid_value             `param` names the field
    │   ├── InvalidPrompt            invalid_value             empty, or an unknown token id
    │   ├── InvalidGrammar           invalid_grammar           it does not compile or match
    │   ├── PromptTooLong            context_length_exceeded   no room for one more token
    │   ├── DuplicateRequest         duplicate_request_id      the id is still in the engine
    │   └── EngineFull               overloaded                the waiting queue is full
    ├── InvalidConfig                invalid_config            the engine cannot start this way
    ├── ModelFileError               model_file_invalid        root of the leaves in runtime/weights
    ├── GrammarFailed                grammar_failed            one output cannot go on
    ├── NonFiniteLogitsError         non_finite_logits         broken weights or kernel
    └── InvariantBroken              internal_error            a bug here, such as a double free

Messages carry counts and limits, never prompt or completion text.
"""

from typing import ClassVar


class RuntimeFault(Exception):
    """Root of every error this library raises on purpose."""

    code: ClassVar[str] = "internal_error"


class RequestRejected(RuntimeFault):
    """The request was refused before it held any resource.

    ``param`` is the name of the field at fault, or None when it is no single field's.
    """

    code: ClassVar[str] = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidSampling(RequestRejected):
    """A sampling parameter is outside its range."""


class InvalidPrompt(RequestRejected):
    """The prompt is empty or names a token the model does not have."""


class InvalidGrammar(RequestRejected):
    """The grammar cannot be used: not valid, not supported, too large, or nothing matches it."""

    code: ClassVar[str] = "invalid_grammar"

    def __init__(self, message: str, *, param: str | None = "response_format") -> None:
        super().__init__(message, param=param)


class PromptTooLong(RequestRejected):
    """The prompt leaves no room for a single output token."""

    code: ClassVar[str] = "context_length_exceeded"


class DuplicateRequest(RequestRejected):
    """A request with this id is waiting or running."""

    code: ClassVar[str] = "duplicate_request_id"


class EngineFull(RequestRejected):
    """The waiting queue has reached its bound."""

    code: ClassVar[str] = "overloaded"


class InvalidConfig(RuntimeFault):
    """Engine settings that contradict each other or the model."""

    code: ClassVar[str] = "invalid_config"


class ModelFileError(RuntimeFault):
    """A model file that cannot be read as what it claims to be."""

    code: ClassVar[str] = "model_file_invalid"


class GrammarFailed(RuntimeFault):
    """A grammar ran into its limits in the middle of an output."""

    code: ClassVar[str] = "grammar_failed"


class InvariantBroken(RuntimeFault):
    """The engine caught itself in a state that must not exist."""
