"""Tiny tokenizers of every kind, trained here on a few lines, and texts that break tokenizers."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
import tokenizers
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

LINES = (
    "The quick brown fox jumps over the lazy dog; the dog's not amused, they'RE asleep.",
    "Hello, wörld! naïve café, résumé. Ünïcödé ﬁ ① \uff12 Å",
    "日本語のテキスト、こんにちは世界。中文 한국어 텍스트",
    "1234567890 3.14159 0x7f 2026-11-30",
    "def f(x):\n    return x + 1\n\n\n\tif x:  # 'done'\n",
    "the the the then there  these   aaaa aaa aa a bbbb bbb",
    '<div>It\'ll work || {"a": [1, 2]}</div>',
) * 20
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% endif %}"
)
_SNIPPETS = (
    *("the", " the", "The", " ", "  ", "        ", "\n", "\n\n", "\r\n", "\t", " \n ", "aaaa"),
    *("日本", "世界。", "한국어", "é", "e\u0301", "ﬁ", "①", "Ⅷ", "A\u030a", "🙂", "👨‍👩‍👧", "🇩🇪"),
    *(
        "\u200b",
        "\x00",
        "\x07",
        "\x7f",
        "\ufeff",
        "\uff11\uff12",
        "3.14",
        "1234567",
        "½",
        "<s>",
        "</s>",
    ),
    *("<unk>", "<0x0A>", "▁", "▁▁", "\u3000", "\xa0", "\u2028", "ｶﾞ", "각", "\u1100\u1161\u11a8"),
    *("'s", "'RE", "x'll", "don't", "<|im_end|>", "<|im_", "!!!", " ...", "_a", "$x", "¿", "́"),
    *("हिन्दी", "ภาษาไทย", "עברית", "\U000e0041", "\ufffe", "Camel", "CASEs", "ǅ", "ªº"),
)


def hostile_texts() -> st.SearchStrategy[str]:
    """Runs of what tokenizers treat specially, and any text without lone surrogates."""
    snippets = st.lists(st.sampled_from(_SNIPPETS), max_size=12).map("".join)
    return st.one_of(snippets, st.text(st.characters(codec="utf-8"), max_size=20))


def train_bpe(pre_tokenizer: pre_tokenizers.PreTokenizer, num_tokens: int = 420) -> dict[str, Any]:
    """The document of a byte-level BPE tokenizer: ``vocab`` and ``merges`` of its model."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return document


def bpe_metadata(model: Mapping[str, Any], pre: str) -> dict[str, Any]:
    """GGUF metadata with ``CONTROLS`` behind the model's own tokens."""
    texts = [*sorted(model["vocab"], key=model["vocab"].__getitem__), *CONTROLS]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [1] * (len(texts) - len(CONTROLS)) + [3] * len(CONTROLS),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": len(texts) - 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def train_sentencepiece(kind: str, **settings: Any) -> Any:
    """A ``SentencePieceProcessor``; ``kind`` is "bpe" or "unigram"."""
    sentencepiece: Any = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type=kind,
        vocab_size=460,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=3,
        **settings,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece_metadata(processor: Any) -> dict[str, Any]:
    """What a converter writes into GGUF for this model."""
    schema: Any = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    proto = schema.ModelProto()
    proto.ParseFromString(processor.serialized_model_proto())
    normalizer = proto.normalizer_spec
    metadata = {
        "tokenizer.ggml.model": "llama" if proto.trainer_spec.model_type == 2 else "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.piece for piece in proto.pieces],
        "tokenizer.ggml.scores": [piece.score for piece in proto.pieces],
        "tokenizer.ggml.token_type": [piece.type for piece in proto.pieces],
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
        "tokenizer.ggml.add_space_prefix": normalizer.add_dummy_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }
    if normalizer.precompiled_charsmap:
        metadata["tokenizer.ggml.precompiled_charsmap"] = list(normalizer.precompiled_charsmap)
    return metadata


def folder_contents(
    tokenizer: tokenizers.Tokenizer, config: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """A Hugging Face folder's files that concern the tokenizer."""
    settings = {"eos_token": CONTROLS[2], "chat_template": TEMPLATE} | dict(config or {})
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps(settings).encode(),
    }


def byte_level_tokenizer(pre_tokenizer: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    """A library tokenizer with ``CONTROLS`` as special tokens."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(train_bpe(pre_tokenizer)))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROLS))
    return tokenizer
