"""Which tokenizer does a Hugging Face folder hold?  ``tokenizer.json``, read by its own library.

Ids are the library's; what is done here is to keep control tokens out of plain text, and to know
what each token spells. [huggingface/tokenizers; transformers tokenization_utils_tokenizers.py]
"""

import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import tokenizers

from runtime.errors import InvalidPrompt
from runtime.tokenizer.bytelevel import byte_level_bytes
from runtime.tokenizer.control import TokenFinder
from runtime.tokenizer.errors import UnsupportedTokenizerError
from runtime.tokenizer.folder_config import FolderConfig, parse_folder_config
from runtime.tokenizer.parts import TokenizerParts, ending_ids, looks_like_control
from runtime.tokenizer.sentencepiece import piece_bytes
from runtime.weights.errors import MalformedModelError, ModelLimitError

MAX_TOKENS = 1 << 20  # as in GGUF files
TOKENIZER = "tokenizer.json"
_MODELS = frozenset({"BPE", "Unigram"})
_SPACE_DECODERS = frozenset({"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})

T = TypeVar("T")


def parse_folder_tokenizer(contents: Mapping[str, memoryview | bytes]) -> TokenizerParts:
    """``contents`` by file name, each of bounded length; other files are not looked at.

    Raises: UnsupportedTokenizerError, UnsupportedModelError, MalformedModelError, ModelLimitError.
    """
    if TOKENIZER not in contents:
        raise UnsupportedTokenizerError(f"the folder has no {TOKENIZER}")
    config = parse_folder_config(contents)
    return _Folder(_load(contents[TOKENIZER]), config, reload=lambda: _load(contents[TOKENIZER]))()


class FolderEncoder:
    """Encodes plain text by the library, control tokens excluded."""

    def __init__(
        self,
        first: tokenizers.Tokenizer,
        rest: tokenizers.Tokenizer,
        *,
        control: Mapping[str, int],
        unknown: AbstractSet[int],
    ) -> None:
        """``first`` for the beginning of a prompt, ``rest`` for other pieces of it.

        Text may become ``unknown`` tokens although they are ``control`` tokens.
        """
        self._first, self._rest = first, rest
        self._forbidden = frozenset(control.values()) - unknown
        self._finder = TokenFinder(control)

    def encode(self, text: str, *, is_start: bool, is_end: bool) -> list[int]:
        """Raises: InvalidPrompt for a text that cannot be told from a control token."""
        token_ids = self._encode(text, is_start=is_start)
        if self._forbidden.isdisjoint(token_ids):
            return token_ids
        # A unigram model may hold its control tokens as pieces: cut inside what spells them.
        done, token_ids = 0, []
        for start, _, _ in self._finder.find(text):
            token_ids += self._encode(text[done : start + 1], is_start=is_start and done == 0)
            done = start + 1
        token_ids += self._encode(text[done:], is_start=is_start and done == 0)
        if self._forbidden.isdisjoint(token_ids):
            return token_ids
        raise InvalidPrompt("the text spells a control token", param="messages")

    def _encode(self, text: str, *, is_start: bool) -> list[int]:
        tokenizer = self._first if is_start else self._rest
        return _foreign(
            lambda: list(tokenizer.encode(text, add_special_tokens=False).ids),
            InvalidPrompt("the tokenizer refuses the text", param="messages"),
        )


class _Folder:
    """The parts of one folder's tokenizer."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        config: FolderConfig,
        *,
        reload: Callable[[], tokenizers.Tokenizer],
    ) -> None:
        self._tokenizer, self._config, self._reload = tokenizer, config, reload
        self._ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        self._added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
        length = max(self._ids.values(), default=-1) + 1
        if not 0 < length <= MAX_TOKENS:
            raise ModelLimitError(f"the vocabulary ends at {length}")
        self._texts = [""] * length
        for text, token_id in self._ids.items():
            self._texts[token_id] = text

    def __call__(self) -> TokenizerParts:
        special = {token.content: i for i, token in self._added.items() if token.special}
        texts = self._config.special_texts.values()
        named = {text: self._ids[text] for text in texts if text in self._ids}
        looking = {text: i for text, i in self._ids.items() if looks_like_control(text)}
        control = {text: i for text, i in (special | named | looking).items() if text}
        endings = ending_ids(control, self._ending_ids())
        return TokenizerParts(
            encoder=self._encoder(control),
            token_bytes=self._token_bytes(),
            control=control,
            hidden=endings | set(special.values()) | set(named.values()),
            user_defined={},  # the library finds them itself, with all their conditions
            strips_left=self._stripping(control, "lstrip"),
            strips_right=self._stripping(control, "rstrip"),
            bos_token_id=self._role("bos_token"),
            eos_token_ids=endings,
            adds_bos=False,  # the reference leaves that to the template
            starts_after_control=False,
            special_texts=self._config.special_texts,
            templates=self._config.templates,
        )

    def _encoder(self, control: Mapping[str, int]) -> FolderEncoder:
        first = _plain(self._tokenizer, control)
        rest = first
        if _prepends_first(first):
            rest = _plain(self._reload(), control)
            _prepend_never(rest)
        unknown = {i for i in (self._role("unk_token"),) if i is not None}
        return FolderEncoder(first, rest, control=control, unknown=unknown)

    def _token_bytes(self) -> list[bytes]:
        kinds = _decoder_kinds(self._tokenizer)
        if kinds == {"ByteLevel"}:
            token_bytes = byte_level_bytes(self._texts)
        elif kinds and kinds <= _SPACE_DECODERS:
            token_bytes = piece_bytes(self._texts)
            for value in range(256) if "ByteFallback" in kinds else ():
                token_id = self._ids.get(f"<0x{value:02X}>")
                if token_id is not None:
                    token_bytes[token_id] = bytes([value])
        else:
            raise UnsupportedTokenizerError(f"decoders {sorted(kinds)} are not known here")
        for token_id, token in self._added.items():
            token_bytes[token_id] = token.content.encode()
        return token_bytes

    def _stripping(self, control: Mapping[str, int], side: str) -> frozenset[int]:
        ids = set(control.values())
        if any(self._added[i].single_word for i in ids if i in self._added):
            raise UnsupportedTokenizerError("a control token counts as a single word only")
        return frozenset(i for i in ids if i in self._added and getattr(self._added[i], side))

    def _ending_ids(self) -> set[int]:
        named = set(self._config.eos_token_ids)
        eos = self._role("eos_token")
        named |= set() if eos is None else {eos}
        if not named or max(named) >= len(self._texts):
            raise MalformedModelError("no end-of-sequence token is in the vocabulary")
        return named

    def _role(self, name: str) -> int | None:
        text = self._config.special_texts.get(name)
        return None if text is None else self._ids.get(text)


def _load(data: memoryview | bytes) -> tokenizers.Tokenizer:
    error = MalformedModelError(f"{TOKENIZER} is not a tokenizer")
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as err:
        raise error from err
    tokenizer = _foreign(lambda: tokenizers.Tokenizer.from_str(text), error)
    if type(tokenizer.model).__name__ not in _MODELS:
        raise UnsupportedTokenizerError("the tokenizer's model is not known here")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _plain(tokenizer: tokenizers.Tokenizer, control: Mapping[str, int]) -> tokenizers.Tokenizer:
    """Marks ``control`` tokens as special, and special tokens as never found in a text."""
    added = [tokenizers.AddedToken(text, special=True, normalized=False) for text in control]
    tokenizer.add_special_tokens(added)
    tokenizer.encode_special_tokens = True
    return tokenizer


def _prepends_first(tokenizer: tokenizers.Tokenizer) -> bool:
    """Whether only the first piece of a text gets a space in front."""
    return any(step.get("prepend_scheme") == "first" for step in _steps(tokenizer.pre_tokenizer))


def _prepend_never(tokenizer: tokenizers.Tokenizer) -> None:
    steps: Any = tokenizer.pre_tokenizer
    if isinstance(steps, tokenizers.pre_tokenizers.Sequence):
        for index, step in enumerate(_steps(steps)):
            if "prepend_scheme" in step:
                steps[index].prepend_scheme = "never"
    else:
        steps.prepend_scheme = "never"
    if _prepends_first(tokenizer):
        raise UnsupportedTokenizerError("pre-tokenizers are nested")


def _decoder_kinds(tokenizer: tokenizers.Tokenizer) -> set[str]:
    return {str(step["type"]) for step in _steps(tokenizer.decoder)}


def _steps(component: Any) -> list[dict[str, Any]]:
    """A component's settings, those of its parts if it is a sequence."""
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    parts: list[dict[str, Any]] = state.get("decoders") or state.get("pretokenizers") or [state]
    return parts


def _foreign(call: Callable[[], T], error: Exception) -> T:
    """What ``call`` into Rust gives; its failures, panics among them, become ``error``.

    A panic is a BaseException of a class that cannot be imported.
    """
    try:
        return call()
    except Exception:
        raise error from None
    except BaseException as err:
        if type(err).__name__ != "PanicException":
            raise
        raise error from None
