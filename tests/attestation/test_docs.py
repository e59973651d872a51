"""Does docs/attestation.md name every policy key, kind, profile and part of a verdict?"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from attestation.kinds import KINDS
from attestation.policy import OWN_PROFILE, SECTIONS, parse_policy
from attestation.policy_table import PolicyTable
from attestation.profiles import PROFILES
from tests.attestation import samples

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "attestation.md").read_text()
_EVERYTHING = Path(__file__).parent / "everything.toml"
_DATA_KEYS = {"Milan", "Genoa", "Turin"}  # tables of [snp.min_tcb], named by `products`


def _keys(table: Mapping[str, object]) -> set[str]:
    found = set(table)
    for value in table.values():
        if isinstance(value, Mapping):
            found |= _keys(value)
    return found


def test_everything_is_a_policy_that_uses_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key that a reader asks for, or looks whether it is there, is in the file."""
    asked: set[str] = set()
    is_there = PolicyTable.has

    def has(table: PolicyTable, key: str) -> bool:
        asked.add(key)
        return is_there(table, key)

    monkeypatch.setattr(PolicyTable, "has", has)
    data = _EVERYTHING.read_bytes()
    policy = parse_policy(data)

    optional = {key for key in asked if not key.startswith("pcr")}
    assert policy.rules.keys() == SECTIONS.keys()
    assert optional <= _keys(tomllib.loads(data.decode()))


def test_every_policy_key_is_on_the_page() -> None:
    missing = [
        key
        for key in _keys(tomllib.loads(_EVERYTHING.read_text())) - SECTIONS.keys() - _DATA_KEYS
        if f"`{key}`" not in PAGE and f"[{key}]" not in PAGE and f".{key}" not in PAGE
    ]

    assert missing == []


@pytest.mark.parametrize("name", [OWN_PROFILE, *PROFILES, *KINDS])
def test_profiles_and_kinds_are_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_member_of_a_verdict_is_on_the_page() -> None:
    for name in samples.judge(samples.evidence()).to_dict():
        assert f"`{name}`" in PAGE, name
