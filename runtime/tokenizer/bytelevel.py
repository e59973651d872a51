"""Byte-level BPE: which tokens does a piece of text merge into?  [Radford et al. 2019]

Merging and splitting are HF ``tokenizers``'s; the vocabulary holds plain tokens only, so that no
text merges into a control token, whatever it says.
"""

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import tokenizers
from tokenizers import models

from runtime.detokenizer import byte_level_alphabet
from runtime.tokenizer.pretokenizers import PreTokenizer
from runtime.weights.errors import MalformedModelError

_NO_BYTE = 256


class ByteLevelEncoder:
    """Encodes plain text; immutable, safe to share between threads."""

    def __init__(
        self,
        vocabulary: dict[str, int],
        merges: Sequence[str],
        *,
        pre_tokenizer: PreTokenizer,
        is_complete: bool = True,
    ) -> None:
        """``vocabulary`` of plain tokens, ``merges`` as "left right", the first merged first.

        With ``is_complete`` every merge must fit the vocabulary, else those that do not are void.
        Bytes that the vocabulary lacks are lost, as in the reference: published ones lack a few
        that text hardly ever has.

        Raises: MalformedModelError.
        """
        pairs = _pairs(merges)
        if not is_complete:
            pairs = [
                (left, right)
                for left, right in pairs
                if left in vocabulary and right in vocabulary and left + right in vocabulary
            ]
        try:
            model = models.BPE(
                vocab=vocabulary, merges=pairs, ignore_merges=pre_tokenizer.ignore_merges
            )
        except Exception as err:  # the Rust side raises Exception itself
            raise MalformedModelError("the merges do not fit the vocabulary") from err
        self._bpe = tokenizers.Tokenizer(model)
        self._bpe.pre_tokenizer = pre_tokenizer.build()
        normalizer = pre_tokenizer.normalizer()
        if normalizer is not None:
            self._bpe.normalizer = normalizer

    def encode(self, text: str, *, is_start: bool, is_end: bool) -> list[int]:
        token_ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return token_ids


def byte_level_bytes(texts: Sequence[str]) -> list[bytes]:
    """What tokens spell: a character of the alphabet its byte, any other itself in UTF-8.

    Others occur in unused entries only, but for added tokens, which spell what they say.
    """
    alphabet = byte_level_alphabet()
    table = np.full(max(map(ord, alphabet)) + 2, _NO_BYTE, np.uint16)
    table[[ord(char) for char in alphabet]] = list(alphabet.values())
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    values = table[np.minimum(codes, len(table) - 1)]
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    data, stops = values.astype(np.uint8).tobytes(), ends.tolist()
    pieces = [data[a:b] for a, b in zip([0, *stops[:-1]], stops, strict=True)] if stops else []
    odd = np.searchsorted(ends, np.flatnonzero(values == _NO_BYTE), side="right")
    for token_id in np.unique(odd).tolist():
        pieces[token_id] = b"".join(
            bytes([alphabet[char]]) if char in alphabet else char.encode()
            for char in texts[token_id]
        )
    return pieces


def _pairs(merges: Sequence[str]) -> list[tuple[str, str]]:
    """Raises: MalformedModelError when there is none, or one is not two texts and a space."""
    if set(map(str.count, merges, repeat(" "))) - {1}:
        raise MalformedModelError("a merge is not two texts")
    joined = "\n".join(merges)
    if joined.count("\n") != len(merges) - 1:
        raise MalformedModelError("a merge has a line feed or there is none")
    flat = joined.replace(" ", "\n").split("\n")
    return list(zip(flat[0::2], flat[1::2], strict=True))
