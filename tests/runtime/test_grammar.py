"""Do masks allow what the grammar allows, and nothing else, whatever the client sends?"""

import contextlib
import json
import time
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import GrammarFailed, InvalidGrammar
from runtime.grammar import ANY_OBJECT_SCHEMA, MAX_GRAMMAR_CHARS, GrammarKind, GrammarSpec
from runtime.grammar_llguidance import LlguidanceCompiler, LlguidanceState
from runtime.tokenizer import Tokenizer
from tests.support.tiny_model import EOS_TOKEN_ID, tiny_metadata

TOKENIZER = Tokenizer(tiny_metadata())
COMPILER = LlguidanceCompiler(TOKENIZER)
EOS_IDS = TOKENIZER.eos_token_ids


def spec(kind: GrammarKind, *sources: str) -> GrammarSpec:
    return GrammarSpec(kind=kind, sources=sources)


def masks_of(state: LlguidanceState, drafts: tuple[int, ...] = ()) -> list[set[int]]:
    masks = np.full((1 + len(drafts), -(-TOKENIZER.vocab_size // 32)), 0xFFFFFFFF, np.uint32)
    state.fill_masks(masks, drafts)
    return [
        set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())
        for row in masks
    ]


def spelled(token_ids: Iterable[int]) -> bytes:
    return b"".join(TOKENIZER.token_bytes[token_id] for token_id in token_ids)


def continuations(choices: list[str], output: bytes) -> set[int]:
    """Tokens after which some choice can still be spelled; the end where one is."""
    rests = [c.encode()[len(output) :] for c in choices if c.encode().startswith(output)]
    allowed = {
        token_id
        for token_id, piece in enumerate(TOKENIZER.token_bytes)
        if token_id not in TOKENIZER.special_token_ids
        and any(piece and rest.startswith(piece) for rest in rests)
    }
    return allowed | (set(EOS_IDS) if b"" in rests else set())


@settings(deadline=None)
@given(
    st.lists(
        st.text(st.sampled_from('ab the"\\\n\u00e9'), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
def test_a_choice_allows_exactly_what_can_become_one(choices: list[str], rng: object) -> None:
    state = COMPILER.compile(spec("choice", *choices))
    output = b""
    for _ in range(40):
        (allowed,) = masks_of(state)
        want = continuations(choices, output)
        # Of several spellings of text that must follow, only the tokenizer's own is allowed.
        forced = state.forced()
        assert allowed == ({forced[0]} if forced else want)
        assert allowed <= want
        token_id = rng.choice(sorted(allowed))  # type: ignore[attr-defined]
        if token_id in EOS_IDS:
            break
        output += TOKENIZER.token_bytes[token_id]
        if state.advance(token_id):
            break
    assert output.decode() in choices


def test_masks_after_drafts_are_those_after_tokens() -> None:
    grammar = spec("json_schema", '{"type":"object","properties":{"a":{"type":"integer"}}}')
    drafts = tuple(TOKENIZER.encode('{"a": 12', special=False))
    state = COMPILER.compile(grammar)
    assert state.num_valid(drafts) == len(drafts)
    assert state.num_valid((*drafts[:3], EOS_TOKEN_ID)) == 3
    along = masks_of(state, drafts)
    assert masks_of(state) == along[:1]
    for token_id, want in zip(drafts, along, strict=False):
        assert masks_of(state) == [want]
        assert not state.advance(token_id)
    assert masks_of(state) == along[-1:]


def test_the_end_is_allowed_exactly_where_the_output_is_complete() -> None:
    state = COMPILER.compile(spec("regex", "[0-9]{2,3}"))
    ends = []
    for char in "123":
        ends.append(masks_of(state)[0] & EOS_IDS)
        is_complete = state.advance(TOKENIZER.encode(char, special=False)[0])
        assert is_complete == (char == "3")
    assert ends == [set(), set(), EOS_IDS]


def test_forced_tokens_are_those_that_must_follow() -> None:
    state = COMPILER.compile(spec("regex", "a(there|the user)"))
    assert not state.advance(TOKENIZER.encode("a", special=False)[0])
    forced = tuple(state.forced())
    assert state.num_valid(forced) == len(forced)
    assert b"the".startswith(spelled(forced))


def member(value: str) -> dict[str, object]:
    return {"type": "object", "properties": {"k": {"const": value}}, "required": ["k"]}


@pytest.mark.parametrize(
    ("branches", "good", "bad"),
    [
        ([{"type": "integer"}, {"type": "string"}], "3", "true"),
        ([{"const": "a"}, {"enum": ["b", "c"]}], '"b"', '"d"'),
        ([member("a"), member("b")], '{"k":"b"}', '{"k":"c"}'),
    ],
)
def test_one_of_branches_that_exclude_each_other_is_any_of_them(
    branches: list[object], good: str, bad: str
) -> None:
    state = COMPILER.compile(spec("json_schema", json.dumps({"oneOf": branches})))
    for text, is_allowed in ((good, True), (bad, False)):
        drafts = tuple(TOKENIZER.encode(text, special=False))
        assert (state.num_valid(drafts) == len(drafts)) == is_allowed


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "integer"}, {"type": "number"}],
        [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}],
        [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}],
        [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 5}],
    ],
)
def test_one_of_branches_that_may_overlap_is_refused(branches: list[object]) -> None:
    with pytest.raises(InvalidGrammar):
        COMPILER.compile(spec("json_schema", json.dumps({"oneOf": branches})))


def test_a_token_that_cannot_follow_is_an_error() -> None:
    state = COMPILER.compile(spec("choice", "yes"))
    with pytest.raises(GrammarFailed) as caught:
        state.advance(TOKENIZER.encode("n", special=False)[0])
    assert caught.value.code == "grammar_failed"
    with pytest.raises(GrammarFailed):
        masks_of(state)


def test_equal_grammars_share_a_compilation_and_no_state() -> None:
    first = COMPILER.compile(spec("choice", "ab"))
    first.advance(TOKENIZER.encode("a", special=False)[0])
    assert masks_of(COMPILER.compile(spec("choice", "ab")))[0] == continuations(["ab"], b"")


def test_white_space_in_json_is_bounded() -> None:
    state = COMPILER.compile(spec("json_schema", ANY_OBJECT_SCHEMA))
    state.advance(TOKENIZER.encode("{", special=False)[0])
    (space,) = TOKENIZER.encode(" ", special=False)
    for _ in range(16):
        assert space in masks_of(state)[0]
        state.advance(space)
    assert space not in masks_of(state)[0]


def deep(levels: int) -> str:
    return '{"type":"array","items":' * levels + "{}" + "}" * levels


FOREVER = (
    "a{1000000}",
    "((a{90,95}){100}){100}",
    "b?|[]{]{2}(?:a{200}|b){9000,}",
    "((a{0000000000090}){00000000000100}){00000000000100}",
    "((a{0000000000090}){00000000000100}){00000000000010}",
)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("regex", "[a-z"),
        ("regex", "(?=a)b"),
        ("regex", r"(a)\1"),
        ("regex", r"[^\s\S]"),
        ("regex", "(" * 3000 + "a" + ")" * 3000),
        ("json_schema", "3"),
        ("json_schema", "not json"),
        ("json_schema", '{"type":"nope"}'),
        ("json_schema", '{"enum":[]}'),
        ("json_schema", '{"$ref":"#"}'),
        ("json_schema", '{"not":{"type":"string"}}'),
        ("json_schema", deep(1000)),
        ("lark", "start: nowhere"),
        ("lark", 'start: "a"{1000000}'),
        *(("regex", source) for source in FOREVER),
        *(("json_schema", json.dumps({"type": "string", "pattern": one})) for one in FOREVER),
        ("json_schema", json.dumps({"patternProperties": {"(a{1000}){1000}": {}}})),
        ("json_schema", json.dumps({"x-guidance": {"item_separator": ",(a{1000}){1000}"}})),
        ("lark", 'start: "%json {" j\nj: %json {"type":"string","pattern":"(a{1000}){1000}"}'),
        ("lark", 'start: %json {"description":"%json ","pattern":"((a{90}){100}){100}"}'),
        ("lark", 'start: "%json " | %json {"pattern":"((a{90}){100}){100}"}'),
        ("choice", "x" * 10_001),
        ("json_schema", json.dumps({"const": "x" * 10_001})),
        ("json_schema", json.dumps({"enum": [3, {"a": ["\\" * 5000]}]})),
        ("json_schema", json.dumps({"properties": {"x" * 10_001: {}}})),
        ("lark", 'start: %json {"const": "' + "\u00e9" * 5000 + '"}'),
    ],
)
def test_what_cannot_be_used_is_refused(kind: GrammarKind, source: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        COMPILER.compile(spec(kind, source))
    assert caught.value.code == "invalid_grammar"
    assert source not in str(caught.value)


def test_what_is_never_written_may_be_long() -> None:
    COMPILER.compile(spec("choice", "a" * 9000, "b" * 9000))
    schema = {"type": "integer", "description": "x" * 20_000, "examples": ["x" * 10_001]}
    COMPILER.compile(spec("json_schema", json.dumps(schema)))


def test_a_refusal_is_remembered() -> None:
    compiler = LlguidanceCompiler(TOKENIZER)
    costly = spec("lark", "start: /(a{1000}){1000}/")
    took_s = []
    for _ in range(2):
        started_s = time.thread_time()
        with pytest.raises(InvalidGrammar):
            compiler.compile(costly)
        took_s.append(time.thread_time() - started_s)
    assert took_s[1] < took_s[0] / 10


@pytest.mark.parametrize("source", FOREVER)
def test_what_writes_out_to_too_much_is_refused_before_it_costs_anything(source: str) -> None:
    COMPILER.compile(spec("regex", "a"))
    started_s = time.thread_time()
    with pytest.raises(InvalidGrammar):
        COMPILER.compile(spec("regex", f"(?:{source})"))
    assert time.thread_time() - started_s < 0.02  # 0.2 s and more, if it were compiled


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (
            "json_schema",
            json.dumps({"properties": {f"k{i}": {"type": "string"} for i in range(1000)}}),
        ),
        ("json_schema", json.dumps({"enum": [f"value {i}" for i in range(2000)]})),
        (
            "json_schema",
            json.dumps(
                {
                    "allOf": [
                        {"anyOf": [{"required": [f"{i}{j}"]} for j in range(8)]} for i in range(8)
                    ]
                }
            ),
        ),
        ("json_schema", json.dumps({"type": "string", "pattern": "(([a-z]{1,99}){1,99}){1,99}"})),
        ("regex", "(a{1,1000}){1,1000}"),
        ("regex", r"(\p{L}+|\w+)*x" * 200),
    ],
)
def test_a_hostile_grammar_costs_little(kind: GrammarKind, source: str) -> None:
    started_s = time.thread_time()
    with contextlib.suppress(InvalidGrammar, GrammarFailed):
        masks_of(COMPILER.compile(spec(kind, source)))
    assert time.thread_time() - started_s < 2  # 0.3 s on an idle machine


def test_a_grammar_is_bounded_before_anything_looks_at_it() -> None:
    for kind, sources in (
        ("regex", ("a" * (MAX_GRAMMAR_CHARS + 1),)),
        ("regex", ("",)),
        ("regex", ("a", "b")),
        ("choice", ()),
        ("choice", ("a",) * 513),
        ("choice", ("a", "")),
    ):
        with pytest.raises(InvalidGrammar):
            GrammarSpec(kind=kind, sources=sources)  # type: ignore[arg-type]


def test_no_grammar_is_shown() -> None:
    assert "canary" not in repr(spec("choice", "canary"))
