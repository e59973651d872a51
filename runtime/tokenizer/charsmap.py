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
_Indices = npt.NDArray[np.int64]


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
    scales by 256; children of a node lie at its base xor their label, and 0 ends a text.
    """
    labels = (units & np.uint32(1 << 31 | 0xFF)).astype(np.int64)
    inner = np.flatnonzero((labels > 0) & (labels < 256))
    children = inner[np.argsort(inner ^ labels[inner], kind="stable")]
    parents = children ^ labels[children]  # the base that each child belongs to, ascending
    bases, prefixes, num_rules = _offset(units[:1]), [b""], 0
    while prefixes:
        if len(prefixes[0]) == MAX_PREFIX_BYTES or len(prefixes) > MAX_RULES:
            raise ModelLimitError("the charsmap is too large")
        first = np.searchsorted(parents, bases)
        counts = np.searchsorted(parents, bases, side="right") - first
        if counts.sum() > MAX_RULES:
            raise ModelLimitError("the charsmap is too large")
        rows = np.repeat(np.arange(len(prefixes)), counts)
        nodes = children[_ranges(first, counts)]
        bases = nodes ^ _offset(units[nodes])
        prefixes = [
            prefixes[row] + bytes((label,))
            for row, label in zip(rows.tolist(), labels[nodes].tolist(), strict=True)
        ]
        leaves = np.flatnonzero(units[nodes] >> 8 & 1)
        num_rules += len(leaves)
        if num_rules > MAX_RULES:
            raise ModelLimitError(f"the charsmap has more than {MAX_RULES} rules")
        if leaves.size and bases[leaves].max() >= len(units):
            raise MalformedModelError("the charsmap's trie points outside itself")
        values = (units[bases[leaves]] & np.uint32(0x7FFFFFFF)).tolist()
        yield from zip([prefixes[leaf] for leaf in leaves.tolist()], values, strict=True)


def _ranges(starts: _Indices, counts: _Indices) -> _Indices:
    """``counts[i]`` numbers from ``starts[i]`` on, for every i."""
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(before - starts, counts)


def _offset(units: _Units) -> _Indices:
    wide = units.astype(np.int64)
    return (wide >> 10) << ((wide & 1 << 9) >> 6)


def _any_of(chars: set[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]"
