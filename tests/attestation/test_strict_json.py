"""Values are taken in one spelling only."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation import strict_json
from attestation.errors import AttestationError


@pytest.mark.parametrize(
    "read",
    [
        lambda: strict_json.hex_bytes("aa bb", "x", num_bytes=2),
        lambda: strict_json.hex_bytes("aabb", "x", num_bytes=1),
        lambda: strict_json.hex_bytes("zz", "x", num_bytes=1),
        lambda: strict_json.integer(-1, "x"),
        lambda: strict_json.integer(True, "x"),
        lambda: strict_json.integer(256, "x", maximum=255),
        lambda: strict_json.text(None, "x"),
        lambda: strict_json.array({}, "x", max_items=1),
        lambda: strict_json.array([1, 2], "x", max_items=1),
        lambda: strict_json.utc_time("2026-12-01", "x"),
        lambda: strict_json.utc_time("2026-12-01T00:00:60Z", "x"),
        lambda: strict_json.utc_time("2026-2-01T00:00:00Z", "x"),
        lambda: strict_json.utc_time("2026-12-01T24:00:00Z", "x"),
        lambda: strict_json.utc_time("2026-12-01T00:00:00+00:00", "x"),
        lambda: strict_json.utc_time("2026-12-01T00:00:00Z\n", "x"),
        lambda: strict_json.utc_time("2026-12-01 00:00:00Z", "x"),
        lambda: strict_json.utc_time("2026-12-01T00:00:00.5Z", "x"),
        lambda: strict_json.utc_time("0000-12-01T00:00:00Z", "x"),
        lambda: strict_json.utc_time("2026-02-29T00:00:00Z", "x"),
        lambda: strict_json.utc_time("\u0662026-12-01T00:00:00Z", "x"),
        lambda: strict_json.sha256_hex("AB" * 32, "x"),
        lambda: strict_json.require_keys([], "x", required=frozenset()),
    ],
)
def test_other_spellings_are_refused(read: Callable[[], object]) -> None:
    with pytest.raises(AttestationError) as caught:
        read()

    assert caught.value.code == "format"


def test_vendor_hex_may_be_upper_case() -> None:
    assert strict_json.hex_bytes("AbCd", "x", num_bytes=2) == b"\xab\xcd"


def test_times_are_in_utc() -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)

    assert strict_json.utc_time("2024-02-29T23:59:59Z", "x") == moment
    assert strict_json.utc_time("2024-02-29T23:59:59Z", "x").tzinfo == UTC


def _parse(text: str, max_depth: int = 3) -> object:
    return strict_json.parse_object(text.encode(), what="x", max_bytes=1000, max_depth=max_depth)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": [{"b": {"c": 1, "d": 2, "c": 3}}]}',
        '{"a": 1.0}',
        '{"a": 1e3}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 9007199254740992}',
        '{"a": [{"b": -9007199254740992}]}',
        '{"a": "\\ud800"}',
        '{"a": ["\\udc00\\ud800"]}',
        '{"\\udfff": 1}',
        '{"a": [{"\\ud800\\ud800": ""}]}',
        '{"a": 1} {}',
        "\ufeff{}",
        "[]",
        '{"a": ' + "[" * 900,
    ],
)
def test_ambiguous_json_is_refused(text: str) -> None:
    with pytest.raises(AttestationError) as caught:
        _parse(text)

    assert caught.value.code == "format"


@pytest.mark.parametrize("colon", [":", ": ", " :", "\n:", "\t:", "\r:"])
@pytest.mark.parametrize(
    "text",
    [
        '{"a"=1,"a"=1}',
        '{"a"=1,"b"={"a"=1,"a"=1}}',
        '{"a"={"b"=1,"c"=2},"a"=1}',
        '{"a"=[{"x"=1},{"x"=[],"x"={"y"=[]}}]}',
        '{"a\\""=1,"a\\""=1}',
    ],
)
def test_a_name_that_occurs_twice_is_found_in_text_of_any_form(text: str, colon: str) -> None:
    with pytest.raises(AttestationError) as caught:
        _parse(text.replace("=", colon), max_depth=8)

    assert caught.value.code == "format"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text('":\\ \n{}[],a'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('":\\ \n{}[],a'), inner),
    max_leaves=20,
)


@given(
    st.dictionaries(st.text(), _VALUES), st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")])
)
def test_what_json_says_is_what_is_read(value: dict[str, object], marks: tuple[str, str]) -> None:
    """Quotes and colons in names and strings are no members."""
    text = json.dumps(value, separators=marks, ensure_ascii=False)

    assert strict_json.parse_object(text.encode(), what="x", max_bytes=10**6, max_depth=99) == value


@pytest.mark.parametrize("text", ['{":":null}', '{":":":"}', '{"a":":","b":[":x",{":":1}]}'])
def test_a_string_that_begins_with_a_colon_is_no_second_member(text: str) -> None:
    assert _parse(text, max_depth=8) == json.loads(text)


@pytest.mark.parametrize("text", ['{":":1,":":1}', '{"a":":","a":":"}', '{":":{"a":1,"a":2}}'])
def test_a_name_that_occurs_twice_is_found_beside_such_strings(text: str) -> None:
    with pytest.raises(AttestationError, match="duplicate member name"):
        _parse(text, max_depth=8)


def test_the_edges_of_what_is_taken() -> None:
    assert _parse('{"a": 9007199254740991, "b": [-9007199254740991, true, null]}') == {
        "a": 2**53 - 1,
        "b": [1 - 2**53, True, None],
    }
    assert _parse('{"\\ud83d\\ude00": "\\u00e9\U0001f600"}') == {"\U0001f600": "é\U0001f600"}


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("{}", 0),
        ('{"a": 1}', 1),
        ('{"a": {}}', 1),
        ('{"a": {}, "b": [[], {"c": 1}]}', 3),
        ('{"a": [[[""]]]}', 4),
    ],
)
def test_depth_counts_every_value(text: str, depth: int) -> None:
    _parse(text, max_depth=depth)
    with pytest.raises(AttestationError, match="nested"):
        _parse(text, max_depth=depth - 1)
