"""Do templates give the ids that ``transformers`` gives, and are hostile ones stopped?"""

import datetime
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, pre_tokenizers

from runtime.errors import InvalidPrompt, ModelFileError
from runtime.tokenizer import Tokenizer, parse_folder_tokenizer
from runtime.tokenizer.parts import TokenizerParts
from runtime.tokenizer.template_sandbox import TemplateSandbox
from tests.support.tokenizers import byte_level_tokenizer, folder_contents, hostile_texts

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "It's <b>local</b> & current",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
# In the manner of published templates, written for these tests: what matters is how each builds
# control tokens, trims, loops, refuses and prints tools.
TEMPLATES = {
    "llama 3": (
        "{{ bos_token }}{%- for m in messages %}\n"
        "{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}\n"
        "{%- if tools and loop.first %}{{ tools | tojson(indent=4) }}{{ '\n\n' }}{% endif %}\n"
        "{%- if m.tool_calls is defined %}{{ m.tool_calls[0].function | tojson }}{% else %}\n"
        "{{- m['content'] | trim }}{% endif %}{{ '<|eot_id|>' }}\n{% endfor %}\n"
        "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
        "{%- endif %}"
    ),
    "qwen": (
        "{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou help.' }}"
        "{%- if tools %}{{ '\n# Tools\n<tools>' }}{% for t in tools %}{{ '\n' ~ (t | tojson) }}"
        "{%- endfor %}{{ '\n</tools>' }}{% endif %}{{ '<|im_end|>\n' }}{% endif %}\n"
        "{%- set ns = namespace(last=messages | length - 1) %}\n"
        "{%- for m in messages[::-1] %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
        "{%- break %}{% endif %}{% endfor %}\n"
        "{%- for m in messages %}\n"
        "{%- set text = m.content if m.content is string else '' %}\n"
        "{%- if '</think>' in text %}"
        "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
        "{{- '<|im_start|>' ~ m.role ~ '\n' ~ text ~ ns.last ~ '<|im_end|>' ~ '\n' }}"
        "{%- for call in m.tool_calls or [] %}{{ call.function.name | tojson }}{% endfor %}"
        "{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
    ),
    "mistral": (
        "{{- bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
        "{{- '[INST] ' + m.content + '[/INST]' }}{% elif m.role == 'assistant' %}"
        "{% generation %}{{- ' ' + (m.content or '') + eos_token }}{% endgeneration %}"
        "{% elif m.role == 'tool' %}"
        "{{- '[TOOL]' + {'id': m.tool_call_id, 'c': m.content} | string }}"
        "{% endif %}{% endfor %}"
    ),
    "phi 3": (
        "{% for m in messages %}{{'<|' + m['role'] + '|>' + '\n' + m['content'] + '<|end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}"
        "{% endif %}"
    ),
    "smollm": (
        "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are small<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}
CONTROLS = (
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "<|user|>"),
    *("<|assistant|>", "<|system|>", "<|end|>", "<|tool|>"),
)
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "  2 < 3 & 'x' \"y\"\n"}],
    [
        {"role": "system", "content": "Be kind. "},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "<think>\nwell</think>\n\nhello"},
        {"role": "user", "content": "日本 🙂"},
    ],
    [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Zürich"}}}],
        },
        {"role": "tool", "content": '{"t": 3}', "tool_call_id": "a1"},
    ],
]


@cache
def library() -> Any:
    """One vocabulary with the control tokens of all of them."""
    found = byte_level_tokenizer(pre_tokenizers.ByteLevel(add_prefix_space=False))
    found.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROLS])
    return found


@cache
def parts() -> TokenizerParts:
    texts = {"bos_token": "<s>", "eos_token": "</s>"}
    return parse_folder_tokenizer(folder_contents(library(), texts))


def ours(template: str) -> Tokenizer:
    return Tokenizer(replace(parts(), templates={"default": template}))


@cache
def named(name: str) -> Tokenizer:
    return ours(TEMPLATES[name])


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("tools", [None, [TOOL]])
@pytest.mark.parametrize("chat", range(len(CHATS)))
@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_equal_transformers(name: str, chat: int, tools: list[dict[str, Any]] | None) -> None:
    transformers: Any = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library(), bos_token="<s>", eos_token="</s>"
    )
    theirs.chat_template = TEMPLATES[name]
    try:
        want = theirs.apply_chat_template(
            CHATS[chat], tools=tools, add_generation_prompt=True, return_dict=False
        )
    except Exception:
        with pytest.raises(InvalidPrompt):
            named(name).encode_chat(CHATS[chat], tools=tools)
    else:
        assert named(name).encode_chat(CHATS[chat], tools=tools) == want


@pytest.mark.parametrize("name", TEMPLATES)
@given(pieces=st.lists(st.one_of(st.sampled_from(CONTROLS), hostile_texts()), max_size=5))
@settings(max_examples=40, deadline=None)
def test_no_value_adds_a_control_token(name: str, pieces: list[str]) -> None:
    tokenizer, text = named(name), "".join(pieces)
    tool = {"type": "function", "function": {"name": text, text: [text, {"a": text}]}}

    def controls(content: str, tools: list[dict[str, Any]]) -> list[int]:
        token_ids = tokenizer.encode_chat(user(content), tools=tools)
        return [token_id for token_id in token_ids if token_id in tokenizer.special_token_ids]

    assert controls(text, [tool]) == controls("hi", [TOOL])


def test_options_and_clock_reach_the_template() -> None:
    tokenizer = ours(
        "{{ enable_thinking }} {{ strftime_now('%d %b %Y') if strftime_now is defined else '-' }}"
    )
    with_both = tokenizer.encode_chat(user("x"), options={"enable_thinking": False}, now=NOW)
    assert tokenizer.decode(with_both) == "False 30 Nov 2026"
    assert tokenizer.decode(tokenizer.encode_chat(user("x"))) == " -"


@pytest.mark.parametrize("pattern", ["%100000d", "%-9999Y", "x" * 65])
def test_dates_have_no_widths(pattern: str) -> None:
    with pytest.raises(InvalidPrompt):
        ours(f"{{{{ strftime_now('{pattern}') }}}}").encode_chat(user("x"), now=NOW)


def test_options_cannot_replace_messages_nor_forge_a_turn() -> None:
    tokenizer = ours("{{ messages[0].content }}{{ extra }}")
    options = {"messages": [{"content": "other"}], "extra": "<|im_end|>"}
    token_ids = tokenizer.encode_chat(user("mine"), options=options)
    assert tokenizer.decode(token_ids, skip_special=False) == "mine<|im_end|>"
    assert not set(token_ids) & tokenizer.special_token_ids


@pytest.mark.parametrize("value", [{"a": b"x"}, {"a": object()}])
def test_values_are_json(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidPrompt):
        named("qwen").encode_chat([{"role": "user", "content": "x", **value}])


def test_nesting_is_bounded() -> None:
    nested: Any = "x"
    for _ in range(100):
        nested = [nested]
    with pytest.raises(InvalidPrompt):
        named("qwen").encode_chat([{"role": "user", "content": nested}])


DOUBLING = (
    "ns.x ~ ns.x",
    "ns.x + ns.x",
    "ns.x.replace('a', 'aa')",
    "ns.x | replace('a', 'aa')",
    "[ns.x, ns.x] | join",
    "''.join([ns.x, ns.x])",
    "[ns.x, ns.x]",
    "(ns.x, ns.x)",
    "{'a': ns.x, 'b': ns.x}",
    "dict(a=ns.x, b=ns.x)",
    "[ns.x] + [ns.x]",
    "(ns.x | length) * 99999999999 * 99999999999 * 99999999999 * 99999999999 * 99999999999"
    " * 99999999999 * 99999999999 * 99999999999",
)


@pytest.mark.parametrize("expression", DOUBLING)
def test_nothing_doubles_for_long(expression: str) -> None:
    template = (
        "{% set ns = namespace(x='ab') %}{% for _ in range(60) %}{% set ns.x = "
        + expression
        + " %}{% endfor %}{{ ns.x | length }}"
    )
    with pytest.raises(InvalidPrompt):
        ours(template).encode_chat(user("x"))


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(50) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in messages recursive %}{{ loop([a, a]) }}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for _ in range(60) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}"
        "{% endset %}{% endfor %}",
        "{% for a in range(99999) %}{% if messages[0].content in messages[0].content[1:] %}"
        "{% endif %}{% endfor %}",
        "{% for _ in range(99999) %}{{ messages[0].content }}{% endfor %}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a'.center(1000000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ 'a\nb' | indent(1000000000) }}",
        "{{ 1.5 | round(1000000000, 'ceil') }}",
        "{{ range(100000) | map('replace', '', 'x') | list | length }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ range }}",
        "{% include 'x' %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_hostile_templates_are_stopped(template: str) -> None:
    with pytest.raises(InvalidPrompt) as caught:
        ours(template).encode_chat(user("secret" * 20_000))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' | center(9) }}",
        "{{ [] | attr('x') }}",
        "{% for %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for a in [1] %}" * 40 + "{% endfor %}" * 40,
        "{{ " + "9" * 5000 + " }}",
    ],
)
def test_templates_that_cannot_run_are_refused_at_load(template: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        ours(template)
    assert caught.value.code == "model_file_malformed"


def test_one_rendering_does_not_spend_the_next_ones_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.tokenizer.template_sandbox.MAX_STEPS", 1000)
    tokenizer = ours("{% for a in range(400) %}{% endfor %}ok")
    for _ in range(5):
        assert tokenizer.decode(tokenizer.encode_chat(user("x"))) == "ok"
    with pytest.raises(InvalidPrompt):
        ours("{% for a in range(1001) %}{% endfor %}ok").encode_chat(user("x"))


def test_a_template_outside_of_a_budget_does_not_run() -> None:
    with pytest.raises(AttributeError):
        TemplateSandbox().from_string("{{ 'a' }}").render()
