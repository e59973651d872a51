"""Where does a text split before byte-pair merges?  Every ``tokenizer.ggml.pre`` that we know.

A name stands for the rule of the model that the name comes from, as its own tokenizer has it
(``tokenizer.json`` of the model, also in [transformers models/*/tokenization_*.py]); which names
exist and which of them share a rule: [llama.cpp src/llama-vocab.cpp, llama_vocab::impl::load].
The expressions run in Oniguruma, the engine of the reference, so none is rewritten for another.
A name that is not here is an error: a wrong split gives a model that seems to work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from runtime.tokenizer.errors import UnsupportedTokenizerError

_SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"  # what may stand where a capital may
_UNCASED = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"  # one space or sign that sticks to the word behind it
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CASED_LETTERS = (  # those DeepSeek lists, by code point: some look like others
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _words(digits: str, *, marks: str = "") -> str:
    """The rule of tiktoken's cl100k with ``digits`` numerals a piece [openai/tiktoken]."""
    letters = rf"[\p{{L}}{marks}]" if marks else r"\p{L}"
    others = rf"[^\s\p{{L}}{marks}\p{{N}}]"
    return rf"{_SUFFIXES}|{_LEAD}{letters}+|\p{{N}}{digits}| ?{others}+[\r\n]*|{_SPACES}"


def _cased_words(digits: str, *, suffixes: str) -> str:
    """The rule of tiktoken's o200k: a word ends where lower case turns into upper case."""
    return (
        rf"{_LEAD}{_CASED}*{_UNCASED}+{suffixes}|{_LEAD}{_CASED}+{_UNCASED}*{suffixes}"
        rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_DEEPSEEK_3 = (
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTokenizer:
    """How one family of models prepares text for merging."""

    splits: tuple[str, ...] = ()  # one after the other; matches and what lies between stay pieces
    gpt2: bool = False  # then GPT-2's own split [openai/gpt-2 src/encoder.py]
    digits: bool = False  # every numeral alone, before anything else
    punctuation: bool = False  # runs of punctuation alone, before GPT-2's split
    nfc: bool = False  # texts are composed first [UAX 15]
    ignore_merges: bool = False  # a piece that is a token is that token, whatever the merges say
    adds_bos: bool = False  # unless the file says otherwise

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Pieces of printable characters that stand for bytes."""
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        if self.punctuation:
            steps.append(pre_tokenizers.Punctuation("contiguous"))
        if self.gpt2:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
        steps += [pre_tokenizers.Split(Regex(split), "isolated") for split in self.splits]
        if not self.gpt2:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


_GPT2 = PreTokenizer(gpt2=True)
_NEOX = PreTokenizer(gpt2=True, nfc=True)
_DIGITS = PreTokenizer(gpt2=True, digits=True)
_LLAMA3 = PreTokenizer(splits=(_words("{1,3}"),), ignore_merges=True, adds_bos=True)
_CL100K = PreTokenizer(splits=(_words("{1,3}"),))
_ONE_DIGIT = PreTokenizer(splits=(_words(""),))
_QWEN2 = PreTokenizer(splits=(_words(""),), nfc=True)
_O200K = PreTokenizer(splits=(_cased_words("{1,3}", suffixes=f"{_SUFFIXES}?"),))
_BLOOM = PreTokenizer(splits=(" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",))
_DEEPSEEK_V3 = PreTokenizer(splits=(r"\p{N}{1,3}", *_DEEPSEEK_3))

_FAMILIES: tuple[tuple[PreTokenizer, str], ...] = (
    (_GPT2, "gpt-2 phi-2 jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum"),
    (_NEOX, "mpt olmo"),
    (_DIGITS, "smollm starcoder refact codeshell exaone minerva-7b"),
    (PreTokenizer(gpt2=True, digits=True, nfc=True), "command-r"),
    (_LLAMA3, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2"),
    (_CL100K, "dbrx smaug-bpe chatglm-bpe"),
    (PreTokenizer(splits=(_words("{1,3}"),), ignore_merges=True), "glm4"),
    (_QWEN2, "qwen2 deepseek-r1-qwen megrez"),
    (PreTokenizer(splits=(_words("", marks=r"\p{M}"),), nfc=True), "qwen35"),
    (_ONE_DIGIT, "stablelm2 hunyuan grok-2 solar-open"),
    (_O200K, "gpt-4o o200k llama4 kanana2 minimax-m2"),
    (
        PreTokenizer(splits=(_cased_words("", suffixes=""),), ignore_merges=True, adds_bos=True),
        "tekken",
    ),
    (
        PreTokenizer(
            splits=(
                "[\r\n]",
                rf"\s?[{_CASED_LETTERS}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"\s+$",
                _CJK,
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    (
        PreTokenizer(splits=("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
        "deepseek-coder",
    ),
    (_DEEPSEEK_V3, "deepseek-v3 hunyuan-dense"),
    (PreTokenizer(punctuation=True, gpt2=True, splits=("[0-9][0-9][0-9]",)), "falcon"),
    (_BLOOM, "bloom gpt3-finnish poro-chat"),
    (PreTokenizer(digits=True, splits=_BLOOM.splits), "viking"),
)
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: family for family, names in _FAMILIES for name in names.split()
}


def find_pre_tokenizer(name: object) -> PreTokenizer:
    """Raises: UnsupportedTokenizerError for a name that is missing or not in the table."""
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise UnsupportedTokenizerError(
            "tokenizer.ggml.pre is missing or names a pre-tokenizer that is not known here"
        )
    return PRE_TOKENIZERS[name]
