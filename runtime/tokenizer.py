"""Which token ids does a text have, and which text do ids spell?  All from the model file.

Byte-level BPE [Radford et al. 2019] by HF ``tokenizers``, built from GGUF's vocabulary and merges.
Control tokens are not in that vocabulary at all: plain text cannot become one, whatever it says.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers

from runtime.chat_template import ChatTemplate
from runtime.detokenizer import IncrementalDetokenizer, byte_level_alphabet, decode_utf8
from runtime.errors import InvalidPrompt
from runtime.weights.errors import MalformedModelError, UnsupportedModelError
from runtime.weights.gguf import MetadataValue

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # llama.h, llama_token_type
_END_OF_GENERATION = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "</s>")


def _smollm() -> pre_tokenizers.PreTokenizer:
    """Every digit alone, then GPT-2's split [llama.cpp LLAMA_VOCAB_PRE_TYPE_SMOLLM]."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


PRE_TOKENIZERS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {"smollm": _smollm}


class Tokenizer:
    """Encodes and decodes for one model; immutable, safe to share between threads."""

    def __init__(self, metadata: Mapping[str, MetadataValue]) -> None:
        """Build from GGUF metadata (``tokenizer.*``).

        Raises: UnsupportedModelError, MalformedModelError, ModelLimitError.
        """
        pre = metadata.get("tokenizer.ggml.pre")
        if metadata.get("tokenizer.ggml.model") != "gpt2" or pre not in PRE_TOKENIZERS:
            raise UnsupportedModelError("the tokenizer is of an unknown model or pre-tokenizer")
        texts = _string_list(metadata, "tokenizer.ggml.tokens")
        kinds = _token_kinds(metadata, len(texts))
        self.vocab_size = len(texts)
        self._special_ids = _ids_of(texts, kinds, {_CONTROL, _UNKNOWN})
        self._added_ids = self._special_ids | _ids_of(texts, kinds, {_USER_DEFINED})
        self._user_pattern = _any_of(self._added_ids.keys() - self._special_ids.keys())
        self._special_pattern = _any_of(self._added_ids)
        self._bpe = _byte_level_bpe(texts, kinds, _string_list(metadata, "tokenizer.ggml.merges"))
        self._bpe.pre_tokenizer = PRE_TOKENIZERS[str(pre)]()
        self._token_bytes = _token_bytes(texts, added=self._added_ids)
        special = set(self._special_ids.values())
        self._shown_bytes = [
            b"" if token_id in special else piece
            for token_id, piece in enumerate(self._token_bytes)
        ]
        bos_token_id = self._token_id(metadata, "bos")
        eos_token_id = self._token_id(metadata, "eos")
        if eos_token_id is None:
            raise MalformedModelError("tokenizer.ggml.eos_token_id is missing")
        named = {
            self._special_ids[text] for text in _END_OF_GENERATION if text in self._special_ids
        }
        self.eos_token_ids = frozenset({eos_token_id} | named)
        adds_bos = metadata.get("tokenizer.ggml.add_bos_token") is True
        self._first_ids = [bos_token_id] if adds_bos and bos_token_id is not None else []
        source = metadata.get("tokenizer.chat_template")
        if not isinstance(source, str):
            raise UnsupportedModelError("the model file has no chat template")
        self._template = ChatTemplate(
            source,
            bos_text="" if bos_token_id is None else texts[bos_token_id],
            eos_text=texts[eos_token_id],
            control_texts=self._special_ids,
        )

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """What each token spells, control tokens their own name."""
        return self._token_bytes

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Control tokens, which no plain text becomes."""
        return frozenset(self._special_ids.values())

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of ``text``; with ``special`` the control tokens it spells count as such.

        Raises: InvalidPrompt when the text has a lone surrogate.
        """
        return self._encode(text, self._special_pattern if special else self._user_pattern)

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text that the ids spell; control tokens are left out unless asked for.

        Raises: IndexError for an id outside the vocabulary.
        """
        table = self._shown_bytes if skip_special else self._token_bytes
        return decode_utf8(table[token_id] for token_id in token_ids)

    def detokenizer(self) -> IncrementalDetokenizer:
        """A decoder for one output; its text in the end equals ``decode`` of its ids."""
        return IncrementalDetokenizer(self._shown_bytes)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The prompt as token ids, ready for the assistant's answer.

        Only the template's own control tokens become such.

        Raises: InvalidPrompt when the template refuses, or the text has a lone surrogate.
        """
        prompt, marker = self._template.render(messages)
        token_ids = self._encode(prompt, self._special_pattern, marker)
        if token_ids[: len(self._first_ids)] == self._first_ids:
            return token_ids
        return self._first_ids + token_ids

    def _encode(self, text: str, pattern: re.Pattern[str], marker: str = "") -> list[int]:
        token_ids: list[int] = []
        # The pattern has one group, so every second piece is an added token's spelling.
        for index, piece in enumerate(pattern.split(text)):
            if index % 2:
                token_ids.append(self._added_ids[piece])
            elif piece:
                token_ids += self._encode_plain(piece.replace(marker, "") if marker else piece)
        return token_ids

    def _encode_plain(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            # No cause: the error's text would quote the prompt.
            raise InvalidPrompt("the text has a lone surrogate", param="messages") from None
        token_ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return token_ids

    def _token_id(self, metadata: Mapping[str, MetadataValue], role: str) -> int | None:
        token_id = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if token_id is None:
            return None
        if type(token_id) is not int or not 0 <= token_id < self.vocab_size:
            raise MalformedModelError(f"tokenizer.ggml.{role}_token_id is not in the vocabulary")
        return token_id


def _byte_level_bpe(
    texts: Sequence[str], kinds: Sequence[int], merges: Sequence[str]
) -> tokenizers.Tokenizer:
    vocabulary = {
        text: token_id for token_id, text in enumerate(texts) if kinds[token_id] == _NORMAL
    }
    # Published vocabularies lack a few byte values that text hardly ever has; such bytes are lost.
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        return tokenizers.Tokenizer(
            models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs])
        )
    except Exception as err:  # the Rust side raises Exception itself
        raise MalformedModelError("the merges do not fit the vocabulary") from err


def _token_bytes(texts: Sequence[str], *, added: Mapping[str, int]) -> list[bytes]:
    alphabet = byte_level_alphabet()
    return [
        text.encode()
        if text in added
        # A character outside the alphabet occurs in unused entries only.
        else b"".join(
            bytes([alphabet[char]]) if char in alphabet else char.encode() for char in text
        )
        for text in texts
    ]


def _ids_of(texts: Sequence[str], kinds: Sequence[int], wanted: set[int]) -> dict[str, int]:
    return {
        text: token_id
        for token_id, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind in wanted and text
    }


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Matches any of ``texts``, the longest first, in one group; none of none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def _token_kinds(metadata: Mapping[str, MetadataValue], length: int) -> list[int]:
    value = metadata.get("tokenizer.ggml.token_type")
    kinds = [kind for kind in value if type(kind) is int] if isinstance(value, list) else []
    if not isinstance(value, list) or not len(kinds) == len(value) == length:
        raise MalformedModelError("tokenizer.ggml.token_type does not fit the vocabulary")
    return kinds


def _string_list(metadata: Mapping[str, MetadataValue], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedModelError(f"{key} is not a list of strings")
    return [str(item) for item in value]
