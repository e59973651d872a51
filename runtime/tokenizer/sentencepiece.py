"""Which pieces of a SentencePiece model does a text consist of?

[Kudo & Richardson 2018; google/sentencepiece src/bpe_model.cc, unigram_model.cc, normalizer.cc]
A space is U+2581 inside pieces. What no piece covers becomes the byte tokens of its UTF-8, or, in
a model without them, the unknown token, one for a whole run.
"""

import heapq
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_float

from runtime.tokenizer.charsmap import parse_charsmap
from runtime.weights.errors import MalformedModelError

SPACE = "▁"
MAX_CACHED_WORDS = 1 << 14
MAX_CACHED_CHARS = 32  # of a word; longer ones hardly recur
_BYTE_VALUES = 256
_UNKNOWN_PENALTY = 10.0  # below the least probable piece
_MAX_BEGINNING = 16  # characters of a piece whose beginnings are kept; few are longer


class SentencePieceNormalizer:
    """Text as the pieces spell it."""

    def __init__(self, *, charsmap: bytes, adds_space: bool, removes_spaces: bool) -> None:
        """A space stands before a text that is not empty; those around it and doubles may go.

        Raises: MalformedModelError, ModelLimitError.
        """
        self._charsmap = parse_charsmap(charsmap)
        self._adds_space, self._removes_spaces = adds_space, removes_spaces

    def normalize(self, text: str, *, is_start: bool, is_end: bool) -> str:
        text = self._charsmap.apply(text)
        if self._removes_spaces:
            text = re.sub("  +", " ", text)
            text = text.lstrip(" ") if is_start else text
        text = text.replace(" ", SPACE)
        if self._removes_spaces and is_end:
            text = text.rstrip(SPACE)
        is_empty = not text and is_end
        return SPACE + text if is_start and self._adds_space and not is_empty else text


class Pieces:
    """Ids of pieces, and of what is none."""

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        scores: Sequence[float],
        *,
        byte_ids: Mapping[int, int],
        unknown_token_id: int | None,
        normalizer: SentencePieceNormalizer,
    ) -> None:
        """``vocabulary`` of plain pieces; ``scores`` by token id, the better the higher.

        Raises: MalformedModelError.
        """
        self.ids = vocabulary
        self.scores = {text: scores[token_id] for text, token_id in vocabulary.items()}
        if not all(map(math.isfinite, self.scores.values())):
            raise MalformedModelError("tokenizer.ggml.scores has values that are no numbers")
        if len(byte_ids) == _BYTE_VALUES:
            self._byte_ids = byte_ids
        elif not byte_ids and unknown_token_id is not None:
            self._byte_ids = {}
        else:
            raise MalformedModelError("the vocabulary lacks byte tokens and an unknown token")
        self._unknown = unknown_token_id
        self.normalizer = normalizer

    def unknown(self, text: str, before: list[int]) -> list[int]:
        """Ids for a ``text`` that no piece covers, to stand behind ``before``."""
        if self._byte_ids:
            return [self._byte_ids[byte] for byte in text.encode()]
        return [] if self._unknown is None or before[-1:] == [self._unknown] else [self._unknown]


class SentencePieceBpe:
    """Merges the neighbours whose piece has the best score, leftmost first, until none has one."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        # No merge crosses from a word to the next one's space unless some piece does.
        is_divisible = not any(SPACE in piece.lstrip(SPACE) for piece in pieces.ids)
        self._words = re.compile(
            f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+" if is_divisible else ".+", re.DOTALL
        )
        self._cache: dict[str, list[str]] = {}

    def encode(self, text: str, *, is_start: bool, is_end: bool) -> list[int]:
        text = self._pieces.normalizer.normalize(text, is_start=is_start, is_end=is_end)
        token_ids: list[int] = []
        ids = self._pieces.ids
        for word in self._words.findall(text):
            for piece in self._split(word):
                token_id = ids.get(piece)
                if token_id is None:
                    token_ids += self._pieces.unknown(piece, token_ids)
                else:
                    token_ids.append(token_id)
        return token_ids

    def _split(self, word: str) -> list[str]:
        if word in self._pieces.ids and len(word) == 1:
            return [word]
        pieces = self._cache.get(word)
        if pieces is None:
            pieces = [piece for piece in self._merge(word) if piece]
            if len(word) <= MAX_CACHED_CHARS:
                if len(self._cache) >= MAX_CACHED_WORDS:
                    self._cache.clear()
                self._cache[word] = pieces
        return pieces

    def _merge(self, word: str) -> list[str]:
        """The pieces of ``word`` and an empty text for every character merged into one before."""
        parts, scores = list(word), self._pieces.scores
        after = list(range(1, len(parts) + 1))  # of each part, the next one that is not empty
        before = list(range(-1, len(parts) - 1))
        heap = [
            (-scores[pair], left, pair)
            for left in range(len(parts) - 1)
            if (pair := word[left : left + 2]) in scores
        ]
        heapq.heapify(heap)
        while heap:
            _, left, merged = heapq.heappop(heap)
            right = after[left]
            if not parts[left] or right == len(parts) or parts[left] + parts[right] != merged:
                continue  # one of the two has been merged otherwise since
            parts[left], parts[right] = merged, ""
            after[left] = behind = after[right]
            if behind < len(parts):
                before[behind] = left
                pair = merged + parts[behind]
                if pair in scores:
                    heapq.heappush(heap, (-scores[pair], left, pair))
            if (ahead := before[left]) >= 0:
                pair = parts[ahead] + merged
                if pair in scores:
                    heapq.heappush(heap, (-scores[pair], ahead, pair))
        return parts


class Unigram:
    """The most probable segmentation, found forwards from every character [Viterbi 1967].

    Of equally probable ones it is the library's: sums have single precision, and the first that is
    found stays.
    """

    def __init__(self, pieces: Pieces) -> None:
        """Raises: MalformedModelError."""
        self._pieces = pieces
        if min(map(len, pieces.ids), default=0) < 1:
            raise MalformedModelError("a piece is empty")
        self._beginnings = {
            piece[:end]
            for piece in pieces.ids
            for end in range(1, min(len(piece), _MAX_BEGINNING + 1))
        }
        self._max_chars = max(map(len, pieces.ids), default=1)
        self._unknown_score = _single(min(pieces.scores.values(), default=0.0) - _UNKNOWN_PENALTY)

    def encode(self, text: str, *, is_start: bool, is_end: bool) -> list[int]:
        text = self._pieces.normalizer.normalize(text, is_start=is_start, is_end=is_end)
        token_ids: list[int] = []
        ids = self._pieces.ids
        for piece in self._split(text):
            token_id = ids.get(piece)
            if token_id is None:
                token_ids += self._pieces.unknown(piece, token_ids)
            else:
                token_ids.append(token_id)
        return token_ids

    def _split(self, text: str) -> list[str]:
        """Pieces, and characters that none covers."""
        starts = [0] * (len(text) + 1)  # of the last piece of the best segmentation up to here
        best = [0.0] + [-math.inf] * len(text)  # its sum of logarithms
        for start in range(len(text)):
            self._go_on_from(start, text, starts, best)
        pieces, end = [], len(text)
        while end > 0:
            pieces.append(text[starts[end] : end])
            end = starts[end]
        return pieces[::-1]

    def _go_on_from(self, start: int, text: str, starts: list[int], best: list[float]) -> None:
        """Try every piece that begins here, or the unknown one."""
        scores, beginnings, so_far = self._pieces.scores, self._beginnings, best[start]
        for end in range(start + 1, min(start + self._max_chars, len(text)) + 1):
            piece = text[start:end]
            if (score := scores.get(piece)) is None and end == start + 1:
                score = self._unknown_score
            if score is not None and (total := _single(so_far + score)) > best[end]:
                best[end], starts[end] = total, start
            if piece not in beginnings and end - start <= _MAX_BEGINNING:
                break


def _single(value: float) -> float:
    return c_float(value).value


def piece_bytes(texts: Sequence[str]) -> list[bytes]:
    """What plain pieces spell, by token id."""
    return list(_spelled(texts))


def _spelled(texts: Sequence[str]) -> Iterator[bytes]:
    for text in texts:
        yield text.replace(SPACE, " ").encode()
