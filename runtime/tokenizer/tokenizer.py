"""The tokenizer of one model: encodes text and chats, decodes ids.

Control tokens are not in the vocabulary that plain text is encoded with: a text cannot become
one, whatever it says. Only those that a chat template itself wrote are taken as such.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from runtime.detokenizer import IncrementalDetokenizer, decode_utf8
from runtime.errors import InvalidPrompt
from runtime.tokenizer.chat_template import ChatTemplates
from runtime.tokenizer.control import ControlSplitter
from runtime.tokenizer.gguf import parse_gguf_tokenizer
from runtime.tokenizer.parts import TokenizerParts
from runtime.weights.gguf import MetadataValue


class Tokenizer:
    """Encodes and decodes for one model; safe to share between threads."""

    def __init__(self, source: Mapping[str, MetadataValue] | TokenizerParts) -> None:
        """Build from GGUF metadata (``tokenizer.*``), or from what other files gave.

        Raises: UnsupportedModelError, MalformedModelError, ModelLimitError.
        """
        parts = source if isinstance(source, TokenizerParts) else parse_gguf_tokenizer(source)
        self.vocab_size = len(parts.token_bytes)
        self.eos_token_ids = parts.eos_token_ids
        self._encoder = parts.encoder
        self._token_bytes = parts.token_bytes
        self._shown_bytes = list(parts.token_bytes)
        for token_id in parts.hidden:
            self._shown_bytes[token_id] = b""
        self._control_ids = frozenset(parts.control.values())
        self._start_ids = self._control_ids if parts.starts_after_control else frozenset[int]()
        self._plain = _splitter(parts, parts.user_defined)
        self._special = _splitter(parts, {**parts.user_defined, **parts.control})
        bos = parts.bos_token_id
        self._first_ids = [] if bos is None or not parts.adds_bos else [bos]
        final = parts.final_token_id
        self._final_ids = [] if final is None else [final]
        self._templates = ChatTemplates(
            parts.templates, special_texts=parts.special_texts, control_texts=parts.control
        )

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """What each token spells, control tokens their own name."""
        return self._token_bytes

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Control tokens, which no plain text becomes."""
        return self._control_ids

    @property
    def writes_tool_calls(self) -> bool:
        """Whether the chat template offers tools, to be called as JSON between `<tool_call>` tags;
        other templates may pass over tools without a word.
        """
        return self._templates.writes_tool_calls

    def encode_prompt(self, text: str) -> list[int]:
        """A text for the model to go on with; what it spells is no control token.

        Raises: InvalidPrompt when the text has a lone surrogate.
        """
        return self._first_ids + self._encode(text, self._plain)

    def encode_document(self, text: str) -> list[int]:
        """A text that is to be embedded, with what the model expects around one.

        Raises: InvalidPrompt when the text has a lone surrogate.
        """
        return self.encode_prompt(text) + self._final_ids

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of ``text``; with ``special`` the control tokens it spells count as such.

        Raises: InvalidPrompt when the text has a lone surrogate.
        """
        return self._encode(text, self._special if special else self._plain)

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text that the ids spell; control tokens are left out unless asked for.

        Raises: IndexError for an id outside the vocabulary.
        """
        table = self._shown_bytes if skip_special else self._token_bytes
        return decode_utf8(table[token_id] for token_id in token_ids)

    def detokenizer(self) -> IncrementalDetokenizer:
        """A decoder for one output; its text in the end equals ``decode`` of its ids."""
        return IncrementalDetokenizer(self._shown_bytes)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> list[int]:
        """The prompt as token ids, ready for the assistant's answer.

        Only the template's own control tokens become such. ``options`` are further variables of
        the template, such as ``enable_thinking``; ``now`` is what its ``strftime_now`` tells.

        Raises: InvalidPrompt when the template refuses, or the text has a lone surrogate.
        """
        prompt, marker = self._templates.render(messages, tools=tools, options=options, now=now)
        token_ids = self._encode(prompt, self._special, marker)
        if token_ids[: len(self._first_ids)] == self._first_ids:
            return token_ids
        return self._first_ids + token_ids

    def _encode(self, text: str, splitter: ControlSplitter, marker: str = "") -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            # No cause: the error's text would quote the prompt.
            raise InvalidPrompt("the text has a lone surrogate", param="messages") from None
        token_ids: list[int] = []
        pieces = list(splitter.split(text))
        for index, piece in enumerate(pieces):
            is_start = index == 0 or pieces[index - 1] in self._start_ids
            if isinstance(piece, str):
                is_end = index == len(pieces) - 1 or pieces[index + 1] in self._control_ids
                plain = piece.replace(marker, "") if marker else piece
                token_ids += self._encoder.encode(plain, is_start=is_start, is_end=is_end)
            else:
                if is_start and piece not in self._control_ids:  # what comes before a text
                    token_ids += self._encoder.encode("", is_start=True, is_end=False)
                token_ids.append(piece)
        return token_ids


def _splitter(parts: TokenizerParts, token_ids: Mapping[str, int]) -> ControlSplitter:
    return ControlSplitter(
        token_ids, strips_left=parts.strips_left, strips_right=parts.strips_right
    )
