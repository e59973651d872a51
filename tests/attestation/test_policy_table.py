"""One table of a policy, key by key: a problem is told and a harmless value stands in for it."""

from collections.abc import Callable
from typing import Any

import pytest

from attestation.policy_table import PolicyTable, in_hex


def _table(values: dict[str, Any]) -> PolicyTable:
    return PolicyTable("tdx.", values, [])


@pytest.mark.parametrize(
    ("read", "value", "stand_in"),
    [
        (lambda table: table.choice("key", ("strict", "lax")), "other", "strict"),
        (lambda table: table.name("key"), "Upper", ""),
        (lambda table: table.number("key", minimum=3), 2, 3),
        (lambda table: table.hex_bytes("key", 2), "00", b"\0\0"),
        (lambda table: table.names("key", in_hex(1)), "00", frozenset()),
    ],
    ids=["choice", "name", "number", "hex_bytes", "names"],
)
def test_a_problem_leaves_the_strictest_value_of_its_kind(
    read: Callable[[PolicyTable], object], value: object, stand_in: object
) -> None:
    wrong, missing = _table({"key": value}), _table({})

    assert read(wrong) == stand_in
    assert read(missing) == stand_in
    assert [problem.startswith("tdx.key: want") for problem in wrong.problems] == [True]
    assert missing.problems == ["tdx.key: missing"]


def test_a_table_that_is_none_is_told_once() -> None:
    wrong, missing = _table({"td": 7}), _table({})

    for table in (wrong, missing):
        assert table.table("td").values == {}
    assert wrong.problems == ["tdx.td: want a table"]
    assert missing.problems == ["tdx.td: missing"]


@pytest.mark.parametrize(
    ("num_chars", "shown"), [(128, f"'{'Z' * 128}'"), (129, f"'{'Z' * 128}'...")]
)
def test_what_is_shown_of_a_value_is_short(num_chars: int, shown: str) -> None:
    table = _table({"key": ["Z" * num_chars]})

    table.names("key", in_hex(1))

    assert table.problems == [f"tdx.key: {shown} is not a value it takes"]


@pytest.mark.parametrize("value", ["", "0", "00a", "0A", "0g", "00\n", "\uff10\uff10"])
def test_hex_has_one_form(value: str) -> None:
    assert not in_hex(1)(value)
    assert in_hex(1)("0f")
