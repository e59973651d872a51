"""Which tokenizer does a GGUF file describe?  ``tokenizer.*`` of its metadata, checked here once.

[ggml docs/gguf.md, Tokenizer; llama.cpp src/llama-vocab.cpp, llama_vocab::impl::load]
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from runtime.tokenizer.bytelevel import ByteLevelEncoder, byte_level_bytes
from runtime.tokenizer.errors import UnsupportedTokenizerError
from runtime.tokenizer.parts import PlainEncoder, TokenizerParts, ending_ids, looks_like_control
from runtime.tokenizer.pretokenizers import find_pre_tokenizer
from runtime.tokenizer.sentencepiece import (
    Pieces,
    SentencePieceBpe,
    SentencePieceNormalizer,
    Unigram,
    piece_bytes,
)
from runtime.weights.errors import MalformedModelError, UnsupportedModelError
from runtime.weights.gguf import MetadataValue

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # llama.h, token types
_ROLES = ("bos", "eos", "eot", "eom", "unknown", "padding")
_ENDING_ROLES = ("eos", "eot", "eom")
_TEMPLATE = "tokenizer.chat_template"
_KEEPS_SPACE = frozenset({"<unk>", "<s>", "<|endoftext|>"})

Metadata: TypeAlias = Mapping[str, MetadataValue]


def parse_gguf_tokenizer(metadata: Metadata) -> TokenizerParts:
    """Raises: UnsupportedModelError, MalformedModelError."""
    return _GgufTokenizer(metadata).parts()


class _GgufTokenizer:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._model = metadata.get("tokenizer.ggml.model")
        if self._model not in ("gpt2", "llama", "t5"):
            raise UnsupportedTokenizerError("tokenizer.ggml.model is none that is known here")
        self._texts = _strings(metadata, "tokenizer.ggml.tokens")
        self._kinds = _kinds(metadata, len(self._texts))
        self._roles = {role: self._role(role) for role in _ROLES}
        if self._roles["eos"] is None:
            raise MalformedModelError("tokenizer.ggml.eos_token_id is missing")
        self._control = self._control_tokens()

    def parts(self) -> TokenizerParts:
        is_gpt2 = self._model == "gpt2"
        token_bytes = byte_level_bytes(self._texts) if is_gpt2 else piece_bytes(self._texts)
        endings = self._endings()
        for token_id in [] if is_gpt2 else self._ids_of(BYTE):
            token_bytes[token_id] = bytes([self._byte(token_id)])
        user_defined = {
            text: token_id
            for text, token_id in self._of_kind(USER_DEFINED).items()
            if text not in self._control
        }
        for text, token_id in (*self._control.items(), *user_defined.items()):
            token_bytes[token_id] = text.encode() if is_gpt2 else text.replace("▁", " ").encode()
        return TokenizerParts(
            encoder=self._byte_level() if is_gpt2 else self._sentencepiece(),
            token_bytes=token_bytes,
            control=self._control,
            hidden=endings | set(self._ids_of(CONTROL, UNKNOWN)),
            user_defined=user_defined,
            strips_right=self._strips_right(),
            bos_token_id=self._roles["bos"],
            eos_token_ids=endings,
            adds_bos=self._flag("add_bos_token", default=self._adds_bos()),
            final_token_id=self._final_token_id(),
            special_texts=self._special_texts(),
            templates=_templates(self._metadata),
        )

    def _control_tokens(self) -> dict[str, int]:
        """Also what the file types as plain but a forged turn would be made of."""
        found = self._of_kind(CONTROL) | self._of_kind(UNKNOWN)
        for token_id, text in enumerate(self._texts):
            if text.startswith(("<", "[")) and looks_like_control(text):
                found[text] = token_id
        for role in ("bos", *_ENDING_ROLES):
            named = self._roles[role]
            if named is not None and self._texts[named]:
                found[self._texts[named]] = named
        return found

    def _special_texts(self) -> dict[str, str]:
        names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
        ids = {name: self._roles[role] for name, role in names.items()}
        return {name: self._texts[found] for name, found in ids.items() if found is not None}

    def _endings(self) -> frozenset[int]:
        named = {self._roles[role] for role in _ENDING_ROLES}
        return ending_ids(self._control, {token_id for token_id in named if token_id is not None})

    def _byte_level(self) -> PlainEncoder:
        pre_tokenizer = find_pre_tokenizer(self._metadata.get("tokenizer.ggml.pre"))
        vocabulary, is_complete = self._plain()
        merges = _strings(self._metadata, "tokenizer.ggml.merges")
        return ByteLevelEncoder(
            vocabulary, merges, pre_tokenizer=pre_tokenizer, is_complete=is_complete
        )

    def _sentencepiece(self) -> PlainEncoder:
        vocabulary, _ = self._plain()
        scores = _scores(self._metadata, len(self._texts))
        charsmap = self._metadata.get("tokenizer.ggml.precompiled_charsmap")
        normalizer = SentencePieceNormalizer(
            charsmap=_bytes(charsmap),
            adds_space=self._flag("add_space_prefix", default=True),
            removes_spaces=self._flag("remove_extra_whitespaces", default=False),
        )
        byte_ids = {self._byte(token_id): token_id for token_id in self._ids_of(BYTE)}
        unknown = self._roles["unknown"]
        if unknown is None:
            unknown = next(iter(self._of_kind(UNKNOWN).values()), None)
        pieces = Pieces(
            vocabulary,
            scores,
            byte_ids=byte_ids,
            unknown_token_id=unknown,
            normalizer=normalizer,
        )
        return Unigram(pieces) if self._model == "t5" else SentencePieceBpe(pieces)

    def _plain(self) -> tuple[dict[str, int], bool]:
        """Tokens that text may become, and whether none of the normal ones was left out."""
        plain = dict(zip(self._texts, range(len(self._texts)), strict=True))
        for token_id in np.flatnonzero(self._kinds != NORMAL).tolist():
            plain.pop(self._texts[token_id], None)
        num_normal = len(plain)
        for text in self._control:
            plain.pop(text, None)
        return plain, len(plain) == num_normal

    def _of_kind(self, kind: int) -> dict[str, int]:
        return {
            text: token_id for token_id in self._ids_of(kind) if (text := self._texts[token_id])
        }

    def _ids_of(self, *kinds: int) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(self._kinds, kinds)).tolist()
        return found

    def _byte(self, token_id: int) -> int:
        text = self._texts[token_id]
        try:
            if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
                return bytes.fromhex(text[3:5])[0]
        except ValueError:
            pass
        raise MalformedModelError("a byte token spells no byte")

    def _strips_right(self) -> frozenset[int]:
        """Phi-3's control tokens swallow white space [llama.cpp, ..._ATTR_RSTRIP].

        The format has no field for it, so that it goes by the model's name there and here.
        """
        name = self._metadata.get("general.name")
        if not isinstance(name, str) or not any(p in name.lower() for p in ("phi-3", "phi3")):
            return frozenset()
        return frozenset(i for text, i in self._control.items() if text not in _KEEPS_SPACE)

    def _final_token_id(self) -> int | None:
        return self._roles["eos"] if self._flag("add_eos_token", default=False) else None

    def _adds_bos(self) -> bool:
        if self._model == "gpt2":
            return find_pre_tokenizer(self._metadata.get("tokenizer.ggml.pre")).adds_bos
        return self._model == "llama"

    def _flag(self, name: str, *, default: bool) -> bool:
        value = self._metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, bool):
            raise MalformedModelError(f"tokenizer.ggml.{name} is not a boolean")
        return value

    def _role(self, role: str) -> int | None:
        token_id = self._metadata.get(f"tokenizer.ggml.{role}_token_id")
        if token_id is None:
            return None
        if type(token_id) is not int or not 0 <= token_id < len(self._texts):
            raise MalformedModelError(f"tokenizer.ggml.{role}_token_id is not in the vocabulary")
        return token_id


def _templates(metadata: Metadata) -> dict[str, str]:
    named = {
        key.removeprefix(f"{_TEMPLATE}."): source
        for key, source in metadata.items()
        if key.startswith(f"{_TEMPLATE}.") and isinstance(source, str)
    }
    source = metadata.get(_TEMPLATE)
    if not isinstance(source, str):
        raise UnsupportedModelError("the model file has no chat template")
    return named | {"default": source}


def _kinds(metadata: Metadata, length: int) -> npt.NDArray[np.int64]:
    value = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(value, list) or len(value) != length or set(map(type, value)) - {int}:
        raise MalformedModelError("tokenizer.ggml.token_type does not fit the vocabulary")
    try:
        return np.array(value, np.int64)
    except OverflowError:
        raise MalformedModelError("tokenizer.ggml.token_type holds no such number") from None


def _scores(metadata: Metadata, length: int) -> Sequence[float]:
    value = metadata.get("tokenizer.ggml.scores")
    if not isinstance(value, list) or len(value) != length or set(map(type, value)) - {float, int}:
        raise MalformedModelError("tokenizer.ggml.scores does not fit the vocabulary")
    return cast("list[float]", value)


def _bytes(value: MetadataValue | None) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, list) or set(map(type, value)) - {int}:
        raise MalformedModelError("tokenizer.ggml.precompiled_charsmap is not bytes")
    try:
        return bytes(int(item) & 0xFF for item in value)
    except ValueError as err:
        raise MalformedModelError("tokenizer.ggml.precompiled_charsmap is not bytes") from err


def _strings(metadata: Metadata, key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or set(map(type, value)) - {str}:
        raise MalformedModelError(f"{key} is not a list of strings")
    return cast("list[str]", value)
