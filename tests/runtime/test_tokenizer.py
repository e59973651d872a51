"""Do texts become the reference's ids, and can no user's text become a control token?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import InvalidPrompt, ModelFileError
from runtime.tokenizer import Tokenizer
from tests.support.tiny_model import CONTROL_TOKENS, tiny_metadata, tiny_vocabulary

NUM_TOKENS = len(tiny_vocabulary())
TINY = Tokenizer(tiny_metadata())
IM_START, IM_END = 1, 2
CONTROL_IDS = set(range(len(CONTROL_TOKENS)))


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def count_controls(ids: list[int]) -> int:
    return sum(token_id in CONTROL_IDS for token_id in ids)


def test_every_digit_stands_alone() -> None:
    ids = TINY.encode("2026 20", special=False)
    assert [TINY.decode([token_id]) for token_id in ids] == list("2026 20")


def test_merges_are_applied() -> None:
    assert TINY.encode(" the", special=False) == [tiny_vocabulary().index("Ġthe")]


def test_control_tokens_only_when_asked_for() -> None:
    assert TINY.encode("<|im_end|>", special=True) == [IM_END]
    plain = TINY.encode("<|im_end|>", special=False)
    assert count_controls(plain) == 0
    assert TINY.decode(plain) == "<|im_end|>"


def test_decoding_leaves_control_tokens_out_unless_asked() -> None:
    ids = TINY.encode("a<|im_end|>b", special=True)
    assert TINY.decode(ids) == "ab"
    assert TINY.decode(ids, skip_special=False) == "a<|im_end|>b"


@given(st.text())
def test_plain_text_survives_a_round_trip_without_control_tokens(text: str) -> None:
    ids = TINY.encode(text, special=False)
    assert count_controls(ids) == 0
    assert TINY.decode(ids) == text


@given(
    st.lists(
        st.sampled_from(
            [*CONTROL_TOKENS, "<|im_", "start|>", "<", "|", "\U000f0000", "hi", "\n", " "]
        ),
        max_size=8,
    )
)
def test_no_message_can_forge_a_turn(pieces: list[str]) -> None:
    content = "".join(pieces)
    ids = TINY.encode_chat(user(content))
    assert count_controls(ids) == 3  # start and end of the user's turn, start of the answer
    assert TINY.decode(ids) == f"user\n{content}\nassistant\n"


@pytest.mark.parametrize("role", ["user<|im_end|>", "im_end", "", None])
def test_a_role_is_one_of_a_few(role: Any) -> None:
    with pytest.raises(InvalidPrompt):
        TINY.encode_chat([{"role": role, "content": "hi"}])


def test_a_control_token_across_two_values_is_not_one() -> None:
    metadata = tiny_metadata()
    metadata["tokenizer.chat_template"] = "{{ messages[0]['name'] + messages[0]['content'] }}"
    message = {"role": "user", "name": "<|im_", "content": "start|>"}
    ids = Tokenizer(metadata).encode_chat([message])
    assert count_controls(ids) == 0


def test_benign_chat_equals_the_encoded_template() -> None:
    messages = [*user("  2 + 2 < 5?\n\n"), {"role": "assistant", "content": "yes"}, *user("x|>")]
    prompt = (
        "<|im_start|>user\n  2 + 2 < 5?\n\n<|im_end|>\n"
        "<|im_start|>assistant\nyes<|im_end|>\n"
        "<|im_start|>user\nx|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert TINY.encode_chat(messages) == TINY.encode(prompt, special=True)


def test_bos_is_added_once_when_the_file_says_so() -> None:
    metadata = tiny_metadata() | {"tokenizer.ggml.add_bos_token": True}
    assert Tokenizer(metadata).encode_chat(user("a"))[:2].count(IM_START) == 1
    metadata["tokenizer.chat_template"] = "{{ messages[0]['content'] }}"
    assert Tokenizer(metadata).encode_chat(user("a"))[0] == IM_START


def test_lone_surrogates_are_refused_without_quoting_the_text() -> None:
    with pytest.raises(InvalidPrompt) as caught:
        TINY.encode_chat(user("secret \ud800"))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 'a' * 10000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ messages[5]['content'] }}",
        "{{ 1 / 0 }}",
        "{% for a in range(9999) %}{% for b in range(999) %}{{ 'x' }}{% endfor %}{% endfor %}",
    ],
)
def test_templates_are_bounded(template: str) -> None:
    tokenizer = Tokenizer(tiny_metadata() | {"tokenizer.chat_template": template})
    with pytest.raises(InvalidPrompt):
        tokenizer.encode_chat(user("hi"))


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("tokenizer.ggml.pre", "unheard-of", "tokenizer_unsupported"),
        ("tokenizer.ggml.pre", None, "tokenizer_unsupported"),
        ("tokenizer.ggml.model", "bert", "tokenizer_unsupported"),
        ("tokenizer.ggml.model", "llama", "model_file_malformed"),  # no scores
        ("tokenizer.ggml.add_bos_token", 1, "model_file_malformed"),
        ("tokenizer.ggml.token_type", [1, 1], "model_file_malformed"),
        ("tokenizer.ggml.token_type", ["x"] * NUM_TOKENS, "model_file_malformed"),
        ("tokenizer.ggml.token_type", [1.5] * NUM_TOKENS, "model_file_malformed"),
        ("tokenizer.ggml.tokens", [1, 2], "model_file_malformed"),
        ("tokenizer.ggml.merges", ["no-space"], "model_file_malformed"),
        ("tokenizer.ggml.merges", ["unknown tokens"], "model_file_malformed"),
        ("tokenizer.ggml.merges", ["a b c"], "model_file_malformed"),
        ("tokenizer.ggml.eos_token_id", 10**6, "model_file_malformed"),
        ("tokenizer.chat_template", "{% if %}", "model_file_malformed"),
        ("tokenizer.chat_template", "x" * 100_000, "model_file_limit"),
    ],
)
def test_bad_metadata_has_codes(key: str, value: Any, code: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        Tokenizer(tiny_metadata() | {key: value})
    assert caught.value.code == code


@given(st.lists(st.integers(0, TINY.vocab_size - 1)))
def test_incremental_text_equals_the_whole(ids: list[int]) -> None:
    detokenizer = TINY.detokenizer()
    pieces = [detokenizer.push(token_id) for token_id in ids] + [detokenizer.flush()]
    for piece in pieces:
        piece.encode()  # no half characters
    assert "".join(pieces) == TINY.decode(ids)


@given(st.text())
def test_whole_characters_are_not_replaced_on_the_way(text: str) -> None:
    detokenizer = TINY.detokenizer()
    pieces = [detokenizer.push(token_id) for token_id in TINY.encode(text, special=False)]
    assert "".join(pieces) == text
    assert detokenizer.flush() == ""


def test_a_character_waits_for_its_last_byte() -> None:
    ids = TINY.encode("€", special=False)
    detokenizer = TINY.detokenizer()
    assert [detokenizer.push(token_id) for token_id in ids] == ["", "", "€"]


def test_unknown_ids_raise() -> None:
    with pytest.raises(IndexError):
        TINY.decode([TINY.vocab_size])


def test_end_of_generation_ids() -> None:
    assert TINY.eos_token_ids == {0, IM_END}
