"""What do the benchmarks ask?  Text of exactly so many tokens, never the same twice.

Without a text of the caller's own, seeded sentences of plain words: what a dense model computes
does not depend on what it reads, but a prompt that was seen before would come from a cache.
"""

import random
from typing import Protocol

from runtime.bench.report import NotMeasurable

_WORDS = (
    "the a one every old small quiet bright river mountain sailor garden engine letter teacher "
    "winter market island window number forest captain machine village question morning answer "
    "writes finds follows carries measures opens keeps watches paints remembers builds turns "
    "slowly often never again today outside together carefully under over between beyond before"
)
_SENTENCE_WORDS = (6, 14)
_PASSAGE = (
    "def read_value(record, name):\n    value = record.get(name)\n    if value is None:\n"
    "        raise KeyError(name)\n    return value\n\n"
)


class PromptTokenizer(Protocol):
    """The part of a tokenizer that prompts need."""

    def encode(self, text: str, *, special: bool) -> list[int]: ...


class Prompts:
    """An endless supply; the same ``seed`` gives the same prompts in the same order."""

    def __init__(
        self,
        tokenizer: PromptTokenizer,
        *,
        seed: int,
        text: str | None = None,
        repetitive: bool = False,
    ) -> None:
        """Cut from ``text`` instead, one prompt after the other, if it is given.

        ``repetitive``: a passage over and over instead, as in code and tables, so that what comes
        next can be looked up.
        """
        self._repetitive = repetitive
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)  # noqa: S311 - sentences, not secrets
        self._ids = None if text is None else tokenizer.encode(text, special=False)
        self._words = _WORDS.split()
        self._position = self._num_taken = 0

    def take(self, num_tokens: int) -> tuple[int, ...]:
        """The next prompt. Raises: NotMeasurable when the given text has too few tokens."""
        if self._ids is None:
            return self._sentences(num_tokens)
        if len(self._ids) < num_tokens:
            raise NotMeasurable(f"the text has {len(self._ids)} tokens, fewer than {num_tokens}")
        if self._position + num_tokens > len(self._ids):
            self._position = (self._position + 1) % num_tokens  # other cuts than in the last round
        start, self._position = self._position, self._position + num_tokens
        return tuple(self._ids[start : start + num_tokens])

    def _sentences(self, num_tokens: int) -> tuple[int, ...]:
        self._num_taken += 1
        ids = self._tokenizer.encode(f"{self._num_taken}. ", special=False)  # two may be alike
        while len(ids) < num_tokens:
            ids += self._tokenizer.encode(self._passage(num_tokens), special=False)
        return tuple(ids[:num_tokens])

    def _passage(self, num_tokens: int) -> str:
        if self._repetitive:
            return _PASSAGE
        num_sentences = 1 + num_tokens // _SENTENCE_WORDS[1]
        return " ".join(self._sentence() for _ in range(num_sentences)) + "\n"

    def _sentence(self) -> str:
        words = self._rng.choices(self._words, k=self._rng.randint(*_SENTENCE_WORDS))
        return " ".join(words).capitalize() + "."
