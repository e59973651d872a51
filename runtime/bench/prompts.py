"""What do the benchmarks ask?  Text of exactly so many tokens, never the same twice.

Without a text of the caller's own, seeded sentences of plain words: what a dense model computes
does not depend on what it reads, but a prompt that was seen before would come from a cache.
"""

import random
from collections.abc import Iterator
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

    def __init__(self, tokenizer: PromptTokenizer, *, seed: int, text: str | None = None) -> None:
        """Cut from ``text`` instead, one prompt after the other, if it is given."""
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
            text = " ".join(self._sentence() for _ in range(1 + num_tokens // _SENTENCE_WORDS[1]))
            ids += self._tokenizer.encode(text + "\n", special=False)
        return tuple(ids[:num_tokens])

    def _sentence(self) -> str:
        words = self._rng.choices(self._words, k=self._rng.randint(*_SENTENCE_WORDS))
        return " ".join(words).capitalize() + "."


def repetitive(tokenizer: PromptTokenizer, num_tokens: int, *, seed: int) -> tuple[int, ...]:
    """A passage over and over, as in code and tables: its continuation can be looked up."""
    passage = tokenizer.encode(f"# {seed}\n{_PASSAGE}", special=False)
    return tuple(next(ids) for ids in [_endless(passage)] for _ in range(num_tokens))


def _endless(passage: list[int]) -> Iterator[int]:
    while True:
        yield from passage
