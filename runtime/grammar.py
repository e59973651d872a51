"""Which outputs are allowed?  A grammar as a client asks for it, and what the engine needs of one.

A grammar constrains token by token: each row of logits gets a mask, and a draft is only tried where
the grammar lets it stand. The end-of-sequence token is allowed exactly where the output so far is
complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.errors import InvalidGrammar

GrammarKind: TypeAlias = Literal["json_schema", "regex", "choice", "lark"]
TokenMasks: TypeAlias = npt.NDArray[np.uint32]
"""(rows, ceil(V / 32)): a ``runtime.logits.TokenMask`` for each row."""

MAX_GRAMMAR_CHARS = 32_768
MAX_CHOICES = 512
JSON_WHITESPACE = r"[\x20\x0A\x0D\x09]{0,16}"  # without a bound a model may indent for ever
ANY_OBJECT_SCHEMA = '{"type":"object"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarSpec:
    """What the output must match, whole: a JSON schema, a regular expression (Rust's syntax), one
    of some texts, or a Lark grammar.

    ``sources`` is the schema, expression or grammar alone, or the choices. Whether it compiles is
    the ``GrammarCompiler``'s to say.

    Raises: InvalidGrammar when it is empty or too large.
    """

    kind: GrammarKind
    sources: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        most = MAX_CHOICES if self.kind == "choice" else 1
        if not 1 <= len(self.sources) <= most or not all(self.sources):
            raise InvalidGrammar(f"a grammar needs a source, a choice 1 to {MAX_CHOICES} texts")
        num_chars = sum(map(len, self.sources))
        if num_chars > MAX_GRAMMAR_CHARS:
            raise InvalidGrammar(
                f"the grammar has {num_chars} characters, more than {MAX_GRAMMAR_CHARS}"
            )


class GrammarState(Protocol):
    """How far one output has come in its grammar; owned by one thread at a time."""

    def num_valid(self, drafts: Sequence[int]) -> int:
        """How many leading drafts could follow."""

    def forced(self) -> Sequence[int]:
        """Tokens that must follow, as far as that is cheap to know; mostly none."""

    def fill_masks(self, masks: TokenMasks, drafts: Sequence[int]) -> None:
        """What may follow now and after each of the (valid) drafts, into 1 + len(drafts) rows.

        Raises: GrammarFailed when the grammar has become too complex to go on.
        """

    def advance(self, token_id: int) -> bool:
        """Take a token of the output; whether the grammar is then complete and nothing may follow.

        Raises: GrammarFailed when the token could not follow.
        """


class GrammarCompiler(Protocol):
    """Makes grammars for one vocabulary; may be called from any thread."""

    def compile(self, spec: GrammarSpec) -> GrammarState:
        """At the start of an output. Raises: InvalidGrammar."""


class GrammarVocabulary(Protocol):
    """The part of a tokenizer that grammars need."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Control tokens, which no text spells."""

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """What each token spells."""

    def encode(self, text: str, *, special: bool) -> list[int]: ...
