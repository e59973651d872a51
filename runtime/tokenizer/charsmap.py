"""How does a SentencePiece model rewrite characters before it looks for pieces?

``precompiled_charsmap``: a double-array trie of prefixes, then the texts that replace them
[google/sentencepiece src/normalizer.h, Normalizer::DecodePrecompiledCharsMap; darts-clone]. The
trie is walked once, with every index checked, into a plain dictionary.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import MalformedModelError, ModelLimitError

MAX_RULES = 1 << 18  # NFKC with case folding has about 40,000
MAX_PREFIX_BYTES = 64  # the longest real ones are 18 bytes

_Units = npt.NDArray[np.uint32]


class Charsmap:
    """Replaces the longest known prefix at every position; what has none stays."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._rules = dict(rules)
        self._longest = max(map(len, self._rules), default=0)
        singles = {prefix for prefix in self._rules if len(prefix) == 1}
        firsts = {prefix[0] for prefix in self._rules if len(prefix) > 1}
        others = {char for prefix in self._rules for char in prefix[1:]}
        alternatives = [f"{_any_of(firsts)}{_any_of(others)}+"] if firsts else []
        alternatives += [_any_of(singles)] if singles else []
        # Whatever starts inside a match ends inside it too, so that matches are done one by one.
        self._pattern = re.compile("|".join(alternatives) or "(?!)")

    def apply(self, text: str) -> str:
        return self._pattern.sub(lambda match: "".join(self._rewrite(match.group())), text)

    def _rewrite(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            for length in range(min(self._longest, len(text) - start), 0, -1):
                replacement = self._rules.get(text[start : start + length])
                if replacement is not None:
                    yield replacement
                    break
            else:
                length = 1
                yield text[start]
            start += length


def parse_charsmap(data: bytes) -> Charsmap:
    """Raises: MalformedModelError, ModelLimitError."""
    if not data:
        return Charsmap({})
    trie_bytes = int.from_bytes(data[:4], "little")
    if len(data) < 4 or trie_bytes % 4 or not 4 <= trie_bytes <= len(data) - 4:
        raise MalformedModelError("the charsmap's trie does not fit it")
    units = np.frombuffer(data, "<u4", trie_bytes // 4, 4).astype(np.uint32)
    texts = data[4 + trie_bytes :]
    rules: dict[str, str] = {}
    for prefix, start in _walk(units):
        end = texts.find(b"\0", start)
        if start > len(texts) or end < 0:
            raise MalformedModelError("a replacement lies outside the charsmap")
        try:
            rules[prefix.decode()] = texts[start:end].decode()
        except UnicodeDecodeError as err:
            raise MalformedModelError("the charsmap is not UTF-8") from err
    return Charsmap(rules)


def _walk(units: _Units) -> Iterator[tuple[bytes, int]]:
    """(prefix, value) of every leaf, shortest prefixes first.

    A unit is a label in bits 0-7, a flag for a leaf in bit 8, an offset in bits 10-30 that bit 9
    scales by 256; children of a node lie at its position xor their label.
    """
    labels = np.arange(1, 256)  # 0 ends a text
    bases, prefixes, num_rules = np.array([_offset(units[:1])[0]]), [b""], 0
    while len(prefixes):
        if len(prefixes[0]) == MAX_PREFIX_BYTES or len(prefixes) > MAX_RULES:
            raise ModelLimitError("the charsmap is too large")
        children = bases[:, None] ^ labels
        is_inside = children < len(units)
        found = np.where(is_inside, units[np.where(is_inside, children, 0)], 1 << 31)
        rows, columns = np.nonzero((found & np.uint32(1 << 31 | 0xFF)) == labels)
        nodes, here = children[rows, columns], found[rows, columns].astype(np.uint32)
        bases = nodes ^ _offset(here)
        prefixes = [
            prefixes[row] + bytes((label + 1,))
            for row, label in zip(rows.tolist(), columns.tolist(), strict=True)
        ]
        for index in np.flatnonzero(here >> 8 & 1).tolist():
            num_rules += 1
            if num_rules > MAX_RULES:
                raise ModelLimitError(f"the charsmap has more than {MAX_RULES} rules")
            if bases[index] >= len(units):
                raise MalformedModelError("the charsmap's trie points outside itself")
            yield prefixes[index], int(units[bases[index]]) & 0x7FFFFFFF


def _offset(units: _Units) -> npt.NDArray[np.int64]:
    wide = units.astype(np.int64)
    return (wide >> 10) << ((wide & 1 << 9) >> 6)


def _any_of(chars: set[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]"
