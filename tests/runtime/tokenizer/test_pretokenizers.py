"""Does every known pre-tokenizer split as the model that it is named for does?

Ids are compared with ``transformers``, where it has the model's tokenizer; for the others the
pieces of one line are written down here, as the published tokenizers give them.
"""

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from runtime.errors import ModelFileError
from runtime.tokenizer import Tokenizer
from runtime.tokenizer.bytelevel import byte_level_bytes
from runtime.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.support.tokenizers import bpe_metadata, hostile_texts, train_bpe

LINE = "It'S 12345 naïve CamelCase!!\n\n  the　日本 x³"
PIECES = {
    "gpt-2": "It|'|S| 12345| naïve| CamelCase|!!|\n\n | the|　|日本| x|³",
    "smollm": "It|'|S| |1|2|3|4|5| naïve| CamelCase|!!|\n\n | the|　|日本| x|³",
    "llama-bpe": "It|'S| |123|45| naïve| CamelCase|!!\n\n| | the|　日本| x|³",
    "qwen2": "It|'S| |1|2|3|4|5| naïve| CamelCase|!!\n\n| | the|　日本| x|³",
    "gpt-4o": "It'S| |123|45| naïve| Camel|Case|!!\n\n| | the|　日本| x|³",
    "tekken": "It|'S| |1|2|3|4|5| naïve| Camel|Case|!!\n\n| | the|　日本| x|³",
    "deepseek-llm": "It|'|S| |12345| na|ï|ve| CamelCase|!!|\n|\n| | the|　|日本| x|³",
    "deepseek-coder": "It|'|S| |1|2|3|4|5| naïve| CamelCase|!!|\n|\n| | the|　日本| x|³",
    "deepseek-v3": "It|'S| |123|45| naïve| CamelCase|!!\n\n| | the|　|日本| x|³",
    "falcon": "It|'|S| |123|45| naïve| CamelCase|!!|\n\n | the|　|日本| x|³",
    "bloom": "It'S| 12345| naïve| CamelCase|!!\n\n | the|　|日本| x³",
    "viking": "It'S| |1|2|3|4|5| naïve| CamelCase|!!\n\n | the|　|日本| x|³",
}


def pieces_of(name: str, text: str) -> list[str]:
    """A tokenizer that merges nothing shows the pieces of its pre-tokenizer."""
    return [text[a:b] for _, (a, b) in PRE_TOKENIZERS[name].build().pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PIECES)
def test_a_line_has_these_pieces(name: str) -> None:
    assert pieces_of(name, LINE) == PIECES[name].split("|")


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
@given(text=hostile_texts())
@settings(max_examples=10, deadline=None)
def test_pieces_are_the_whole_text(name: str, text: str) -> None:
    pieces = [piece for piece, _ in PRE_TOKENIZERS[name].build().pre_tokenize_str(text)]
    assert all(pieces)
    assert b"".join(byte_level_bytes(pieces)).decode() == text


@cache
def trained() -> dict[str, Any]:
    model: dict[str, Any] = train_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))["model"]
    return model


@cache
def ours(name: str) -> Tokenizer:
    return Tokenizer(bpe_metadata(trained(), name))


@cache
def reference(name: str) -> Library:
    """The library's tokenizer with what ``transformers`` says of this name."""
    transformers: Any = pytest.importorskip("transformers")
    mapping: Any = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    merges = [(left, right) for left, right in trained()["merges"]]
    classes = {
        "gpt-2": "GPT2Tokenizer",
        "mpt": "GPTNeoXTokenizer",
        "olmo": "GPTNeoXTokenizer",
        "command-r": "CohereTokenizer",
        "qwen2": "Qwen2Tokenizer",
    }
    if name in classes:
        theirs = getattr(transformers, classes[name])(vocab=dict(trained()["vocab"]), merges=merges)
        library: Library = theirs.backend_tokenizer
        return library
    tokenizer = transformers.GPT2Tokenizer(vocab=dict(trained()["vocab"]), merges=merges)
    mapping.set_split_regex(tokenizer, {"pre_tokenizer_type": name})
    library = tokenizer.backend_tokenizer
    if PRE_TOKENIZERS[name].ignore_merges:
        library.model = models.BPE(vocab=trained()["vocab"], merges=merges, ignore_merges=True)
    return library


@pytest.mark.parametrize(
    "name",
    [
        *("gpt-2", "mpt", "olmo", "command-r", "qwen2", "llama-bpe", "dbrx", "tekken", "gpt-4o"),
        "llama4",
    ],
)
@given(text=hostile_texts())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ids_equal_transformers(name: str, text: str) -> None:
    want = reference(name).encode(text, add_special_tokens=False)
    assert ours(name).encode(text, special=False) == [
        trained()["vocab"][piece] for piece in want.tokens
    ]


@pytest.mark.parametrize("name", ["", "GPT-2", "unheard-of", None, 1])
def test_unknown_names_have_one_code(name: Any) -> None:
    with pytest.raises(ModelFileError) as caught:
        Tokenizer(bpe_metadata(trained(), "gpt-2") | {"tokenizer.ggml.pre": name})
    assert caught.value.code == "tokenizer_unsupported"
