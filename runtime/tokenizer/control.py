"""Where does a text spell whole tokens?  Leftmost first, the longest there.

[huggingface/tokenizers added_vocabulary.rs; llama.cpp tokenizer_st_partition]
"""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

# Unicode's White_Space, which the reference strips; Python's own set has four more.
_WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class TokenFinder:
    """Finds spelled tokens among thousands without trying each of them."""

    def __init__(self, token_ids: Mapping[str, int]) -> None:
        """``token_ids`` by spelling; an empty spelling is never found."""
        self._token_ids = {text: token_id for text, token_id in token_ids.items() if text}
        lengths: dict[str, set[int]] = {}
        seconds: dict[str, set[str]] = {}
        for text in self._token_ids:
            lengths.setdefault(text[0], set()).add(len(text))
            seconds.setdefault(text[0], set()).add(text[1:2])
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._beginning = re.compile("|".join(_beginnings(seconds)) or "(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(start, end, token id) of each, left to right, none overlapping another."""
        position = 0
        while match := self._beginning.search(text, position):
            start = match.start()
            position = start + 1
            for length in self._lengths[text[start]]:
                token_id = self._token_ids.get(text[start : start + length])
                if token_id is not None:
                    position = start + length
                    yield start, position, token_id
                    break


class ControlSplitter:
    """Cuts a text into token ids and the plain text between them."""

    def __init__(
        self,
        token_ids: Mapping[str, int],
        *,
        strips_left: AbstractSet[int],
        strips_right: AbstractSet[int],
    ) -> None:
        self._finder = TokenFinder(token_ids)
        self._strips_left, self._strips_right = strips_left, strips_right

    def split(self, text: str) -> Iterator[str | int]:
        """Plain pieces are never empty."""
        done = 0
        for start, end, token_id in self._finder.find(text):
            plain = text[done:start]
            if token_id in self._strips_left:
                plain = plain.rstrip(_WHITE)
            if plain:
                yield plain
            yield token_id
            done = end
            if token_id in self._strips_right:
                done += len(text[end:]) - len(text[end:].lstrip(_WHITE))
        if done < len(text):
            yield text[done:]


def _beginnings(seconds: Mapping[str, AbstractSet[str]]) -> Iterator[str]:
    """Patterns of the first two characters, or of one where one is a whole token."""
    for first, following in seconds.items():
        if "" in following:
            yield re.escape(first)
        else:
            yield f"{re.escape(first)}[{''.join(map(re.escape, sorted(following)))}]"
