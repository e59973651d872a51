"""How does a grammar become masks over a vocabulary?  By ``llguidance`` [docs/decisions/0010].

It walks an Earley parser and lexer derivatives over a trie of the vocabulary: a mask takes some
10 to 200 us for common grammars. Its limits bound what a hostile grammar costs, in time and memory;
its messages can quote the grammar and the output, so none of them is passed on.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from runtime.errors import GrammarFailed, InvalidGrammar
from runtime.grammar import JSON_WHITESPACE, GrammarSpec, GrammarVocabulary, TokenMasks
from runtime.grammar_bounds import (
    require_bounded_expression,
    require_bounded_lark,
    require_bounded_schema,
    require_bounded_text,
)

_INITIAL_LEXER_FUEL: Final = 500_000  # about 10 ms [llguidance LLParserLimits]
_STEP_LEXER_FUEL: Final = 50_000  # about 4 ms a mask
_STEP_MAX_ITEMS: Final = 20_000  # about 1 ms a mask
_MAX_LEXER_STATES: Final = 25_000  # 1 to 2 kB each
_MAX_GRAMMAR_SIZE: Final = 50_000
_MAX_ITEMS_IN_ROW: Final = 1_000
_MAX_CACHED: Final = 64
_MAX_REFUSED: Final = 256  # refused grammars that are remembered, by their hash


class LlguidanceCompiler:
    """``runtime.grammar.GrammarCompiler`` with a cache; safe to share between threads."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None  # built when first asked for: 0.3 s
        self._executor = LLExecutor(num_threads=1)
        self._cache: OrderedDict[GrammarSpec, LLMatcher] = OrderedDict()
        self._refused: OrderedDict[bytes, str] = OrderedDict()  # and why
        self._lock = threading.Lock()  # of tokenizer, cache and refused
        self._limits = LLParserLimits(
            initial_lexer_fuel=_INITIAL_LEXER_FUEL,
            step_lexer_fuel=_STEP_LEXER_FUEL,
            step_max_items=_STEP_MAX_ITEMS,
            max_lexer_states=_MAX_LEXER_STATES,
            max_grammar_size=_MAX_GRAMMAR_SIZE,
            max_items_in_row=_MAX_ITEMS_IN_ROW,
            verbose_errors=False,
        )

    def compile(self, spec: GrammarSpec) -> "LlguidanceState":
        """Well below a second for the largest grammar that is let through; the GIL is released.

        Raises: InvalidGrammar; at once when the same grammar was refused before.
        """
        digest = _digest(spec)
        with self._lock:
            matcher = self._cache.get(spec)
            if matcher is not None:
                self._cache.move_to_end(spec)
                return LlguidanceState(matcher.deep_copy(), self._executor)
            if digest in self._refused:
                self._refused.move_to_end(digest)
                raise InvalidGrammar(self._refused[digest])
        try:
            matcher = self._compiled(spec)
        except InvalidGrammar as err:
            with self._lock:
                self._refused[digest] = str(err)
                while len(self._refused) > _MAX_REFUSED:
                    self._refused.popitem(last=False)
            raise
        with self._lock:
            self._cache[spec] = matcher
            while len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
            return LlguidanceState(matcher.deep_copy(), self._executor)

    def _compiled(self, spec: GrammarSpec) -> LLMatcher:
        grammar = _grammar(spec)
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _tokenizer(self._vocabulary)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise InvalidGrammar("the grammar is not valid, not supported, or too complex")
        mask = matcher.compute_bitmask()  # the first mask finds out whether anything matches
        if matcher.is_error() or (matcher.is_stopped() and not matcher.is_accepting()):
            raise InvalidGrammar("nothing matches the grammar, or it is too complex")
        if not matcher.is_stopped() and not _can_start(matcher, mask):
            raise InvalidGrammar("the grammar is too complex")
        return matcher


class LlguidanceState:
    """``runtime.grammar.GrammarState``."""

    __slots__ = ("_executor", "_matcher")

    def __init__(self, matcher: LLMatcher, executor: LLExecutor) -> None:
        self._matcher = matcher
        self._executor = executor

    def num_valid(self, drafts: Sequence[int]) -> int:
        return self._matcher.validate_tokens(list(drafts))

    def forced(self) -> Sequence[int]:
        return self._matcher.compute_ff_tokens()

    def fill_masks(self, masks: TokenMasks, drafts: Sequence[int]) -> None:
        num_rows, num_words = masks.shape
        if num_rows != 1 + len(drafts) or not masks.flags.c_contiguous:
            raise ValueError("the masks need one contiguous row, and one for each draft")
        row_bytes = num_words * masks.itemsize
        if drafts:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(
                [(self._matcher, 0, list(drafts))], masks.ctypes.data, row_bytes, num_rows
            )
        else:
            self._matcher.unsafe_compute_mask_ptr(masks.ctypes.data, row_bytes)
        self._require_sound()

    def advance(self, token_id: int) -> bool:
        self._matcher.consume_token(token_id)
        self._require_sound()
        return self._matcher.is_stopped()

    def _require_sound(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailed("the grammar has become too complex, or was left")


def _can_start(matcher: LLMatcher, mask: bytes) -> bool:
    """Whether one of the tokens that may come first can be taken: a lexer may only give up then."""
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
    trial = matcher.deep_copy()
    return bool(trial.consume_token(int(np.argmax(bits))))


def _digest(spec: GrammarSpec) -> bytes:
    digest = hashlib.sha256(spec.kind.encode())
    for source in spec.sources:
        digest.update(b"\0" + hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest())
    return digest.digest()


def _grammar(spec: GrammarSpec) -> str:
    """Raises: InvalidGrammar."""
    if spec.kind == "choice":
        for text in spec.sources:
            require_bounded_text(text)
        texts = (json.dumps(text, ensure_ascii=False) for text in spec.sources)
        return LLMatcher.grammar_from_lark("start: " + " | ".join(texts))
    (source,) = spec.sources
    if spec.kind == "regex":
        require_bounded_expression(source)
        return LLMatcher.grammar_from_regex(source)
    if spec.kind == "lark":
        require_bounded_lark(source)
        return LLMatcher.grammar_from_lark(source)
    require_bounded_schema(source)
    try:
        return LLMatcher.grammar_from_json_schema(
            source, overrides={"whitespace_pattern": JSON_WHITESPACE}
        )
    except ValueError:
        raise InvalidGrammar("the JSON schema is no JSON object") from None


def _tokenizer(vocabulary: GrammarVocabulary) -> LLTokenizer:
    eos_token_ids = sorted(vocabulary.eos_token_ids)
    return LLTokenizer(
        TokenizerWrapper(_Wrapped(vocabulary, eos_token_ids[0])),
        n_vocab=vocabulary.vocab_size,
        eos_token=eos_token_ids,
    )


class _Wrapped:
    """A vocabulary in the shape that ``TokenizerWrapper`` reads."""

    bos_token_id = None

    def __init__(self, vocabulary: GrammarVocabulary, eos_token_id: int) -> None:
        self.eos_token_id = eos_token_id
        self.tokens = list(vocabulary.token_bytes)
        self.special_token_ids = sorted(vocabulary.special_token_ids)
        self._encode = vocabulary.encode

    def __call__(self, text: Any) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("text is expected, which TokenizerWrapper finds out by this error")
        return self._encode(text, special=False)
