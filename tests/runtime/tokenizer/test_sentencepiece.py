"""Are the ids those of the sentencepiece library itself?"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from runtime.errors import ModelFileError
from runtime.tokenizer import Tokenizer
from runtime.tokenizer.charsmap import parse_charsmap
from runtime.tokenizer.sentencepiece import Pieces, SentencePieceNormalizer, Unigram
from tests.support.tokenizers import hostile_texts, sentencepiece_metadata, train_sentencepiece

pytest.importorskip("sentencepiece")

_SYMBOLS = "user_defined_symbols"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "remove_extra_whitespaces": False,
    },
    "gemma": {
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
        _SYMBOLS: ["<sep>", "▁▁", "▁▁▁▁"],
    },
    "t5": {"normalization_rule_name": "nmt_nfkc"},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf", "add_dummy_prefix": False},
    "across words": {
        "normalization_rule_name": "nfkc",
        "byte_fallback": True,
        "split_by_whitespace": False,
    },
    "user-defined": {
        "normalization_rule_name": "identity",
        _SYMBOLS: ["<s2>", "fox"],
    },
}
# In unigram models symbols that overlap are weighed against each other; published ones have none.
CASES = [(kind, name) for kind in ("bpe", "unigram") for name in SETTINGS if name != "gemma"]
CASES += [("bpe", "gemma")]


@cache
def pair(kind: str, name: str) -> tuple[Any, Tokenizer]:
    """The library's model and ours."""
    processor = train_sentencepiece(kind, **SETTINGS[name])
    metadata = sentencepiece_metadata(processor)
    # Converters write user-defined pieces with plain spaces [llama.cpp convert_hf_to_gguf.py].
    metadata["tokenizer.ggml.tokens"] = [
        text.replace("▁", " ") if kind == 4 else text
        for text, kind in zip(
            metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True
        )
    ]
    return processor, Tokenizer(metadata)


@pytest.mark.parametrize(("kind", "name"), CASES)
@given(text=hostile_texts())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ids_equal_the_library(kind: str, name: str, text: str) -> None:
    processor, tokenizer = pair(kind, name)
    if name == "gemma" and "▁" in text:
        return  # the library takes a literal ▁ for a space where it looks for ▁▁
    ours, theirs = tokenizer.encode(text, special=False), processor.encode(text)
    if kind == "unigram" and any(symbol in text for symbol in SETTINGS[name].get(_SYMBOLS, ())):
        # Its sums go on over the symbols that ours are cut at, so that they are rounded otherwise.
        assert processor.decode(ours) == processor.decode(theirs)
        assert score_of(processor, ours) == pytest.approx(score_of(processor, theirs), abs=1e-4)
    else:
        assert ours == theirs


def score_of(processor: Any, token_ids: list[int]) -> float:
    return math.fsum(map(processor.get_score, token_ids))


@pytest.mark.parametrize("name", ["llama", "across words"])
def test_of_equal_segmentations_it_is_the_library_s(name: str) -> None:
    """What differs in single precision alone, and what does not differ at all."""
    processor, tokenizer = pair("unigram", name)
    for before in ("", "a", "the fox", "  ing"):
        for count in range(1, 12):
            for text in (before + "\n" * count, before + " " * count + "the" * count):
                assert tokenizer.encode(text, special=False) == processor.encode(text)


@pytest.mark.parametrize("length", [3, 15, 16, 17, 18, 40])
def test_a_long_piece_is_found(length: int) -> None:
    long = "ab" * length
    pieces = {"a": 0, "b": 1, long: 2, "ba": 3}
    normalizer = SentencePieceNormalizer(charsmap=b"", adds_space=False, removes_spaces=False)
    scores = [-9.0, -9.0, -9.5, -9.0]
    unigram = Unigram(
        Pieces(pieces, scores, byte_ids={}, unknown_token_id=4, normalizer=normalizer)
    )
    assert unigram.encode(f"b{long}xx{long[:-1]}", is_start=True, is_end=True) == [
        1, 2, 4, 0, *[3] * (length - 1),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=hostile_texts())
@settings(max_examples=100, deadline=None)
def test_bytes_make_every_text_survive(kind: str, text: str) -> None:
    _, tokenizer = pair(kind, "llama")
    token_ids = tokenizer.encode(text, special=False)
    want = " " + text if text else ""
    assert tokenizer.decode(token_ids) == want.replace("▁", " ")
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    assert "".join(pieces) + detokenizer.flush() == tokenizer.decode(token_ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("text", ["</s>", "a</s>b", "<s>", "<unk></s>", "</s></s>"])
def test_no_text_becomes_a_control_token(kind: str, text: str) -> None:
    _, tokenizer = pair(kind, "llama")
    assert not {0, 1, 2} & set(tokenizer.encode(text, special=False))
    chat = tokenizer.encode_chat([{"role": "user", "content": text}])
    assert [token_id for token_id in chat if token_id < 3] == [1] * (kind == "bpe")
    assert 2 in tokenizer.encode("</s>", special=True)


def test_text_behind_a_control_token_gets_a_space_and_behind_a_symbol_none() -> None:
    _, tokenizer = pair("bpe", "user-defined")
    pieces = [tokenizer.token_bytes[i] for i in tokenizer.encode("a</s>a<s2>a", special=True)]
    assert b"".join(pieces) == b" a</s> a<s2>a"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tokenizer.ggml.scores": []}, "model_file_malformed"),
        ({"tokenizer.ggml.scores": ["x"]}, "model_file_malformed"),
        ({"tokenizer.ggml.token_type": [1] * 5}, "model_file_malformed"),
        ({"tokenizer.ggml.add_space_prefix": 1}, "model_file_malformed"),
        ({"tokenizer.ggml.precompiled_charsmap": [1, 2]}, "model_file_malformed"),
        ({"tokenizer.ggml.precompiled_charsmap": "x"}, "model_file_malformed"),
        ({"tokenizer.ggml.unknown_token_id": -1}, "model_file_malformed"),
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_bad_metadata_has_codes(kind: str, change: dict[str, Any], code: str) -> None:
    metadata = sentencepiece_metadata(train_sentencepiece(kind, **SETTINGS["llama"]))
    with pytest.raises(ModelFileError) as caught:
        Tokenizer(metadata | change)
    assert caught.value.code == code


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_scores_are_numbers_and_some_bytes_are_not_enough(kind: str) -> None:
    metadata = sentencepiece_metadata(train_sentencepiece(kind, **SETTINGS["llama"]))
    scores = [*metadata["tokenizer.ggml.scores"][:-1], float("nan")]
    kinds = [1 if kind == 6 else kind for kind in metadata["tokenizer.ggml.token_type"]]
    kinds[300] = 6
    for change in ({"tokenizer.ggml.scores": scores}, {"tokenizer.ggml.token_type": kinds}):
        with pytest.raises(ModelFileError) as caught:
            Tokenizer(metadata | change)
        assert caught.value.code == "model_file_malformed"


@given(hostile_texts())
def test_an_empty_charsmap_changes_nothing(text: str) -> None:
    assert parse_charsmap(b"").apply(text) == text
