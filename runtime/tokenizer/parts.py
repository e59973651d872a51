"""What is a tokenizer made of, wherever its files came from?"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

_BRACKETS = (("<|", "|>"), ("<｜", "｜>"))  # noqa: RUF001 - DeepSeek's are full width
_TURNS = frozenset({"<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"})
# Tokens that end an answer in published models, where a file names but one of them
# [llama.cpp src/llama-vocab.cpp, special_eog_ids].
_ENDINGS = (
    "<|endoftext|> <|im_end|> <|eot_id|> <|eom_id|> <|end|> <|return|> <|call|> <|end_of_text|> "
    "<end_of_turn> <end_of_utterance> <EOT> [EOT] [EOS] </s> <｜end▁of▁sentence｜>"  # noqa: RUF001
)
_HARMONY = frozenset({"<|return|>", "<|call|>"})  # with both, <|end|> only ends a message


class PlainEncoder(Protocol):
    """Encodes text in which nothing is a control token."""

    def encode(self, text: str, *, is_start: bool, is_end: bool) -> list[int]:
        """``is_start``: nothing or a control token stands before the text; ``is_end``: behind."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """Everything that a ``Tokenizer`` needs."""

    encoder: PlainEncoder
    token_bytes: Sequence[bytes]  # by token id: what it spells in an output
    control: Mapping[str, int]  # never made from a user's text
    hidden: AbstractSet[int]  # control tokens that are no part of an output's text
    user_defined: Mapping[str, int]  # whole wherever they are spelled
    strips_left: AbstractSet[int] = frozenset()  # control tokens that swallow white space there
    strips_right: AbstractSet[int] = frozenset()
    bos_token_id: int | None
    eos_token_ids: frozenset[int]
    adds_bos: bool  # to a chat whose template did not
    final_token_id: int | None = None  # behind a text that is to be embedded
    starts_after_control: bool = True  # whether text behind a control token is like a beginning
    special_texts: Mapping[str, str]  # what templates know: bos_token, eos_token ...
    templates: Mapping[str, str]  # by name; "default" is there


def looks_like_control(text: str) -> bool:
    """Whether a spelling is one that chat templates use between turns."""
    return text in _TURNS or any(
        text.startswith(left) and text.endswith(right) and len(text) > len(left + right)
        for left, right in _BRACKETS
    )


def ending_ids(candidates: Mapping[str, int], named: AbstractSet[int]) -> frozenset[int]:
    """Ids that end an answer: those the file ``named`` and well-known ``candidates``."""
    found = {text: token_id for text, token_id in candidates.items() if text in _ENDINGS.split()}
    if found.keys() >= _HARMONY:
        found.pop("<|end|>", None)
    return frozenset(named | set(found.values()))
