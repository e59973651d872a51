"""The Nitro table of a policy, and the bindings by value."""

from datetime import timedelta
from typing import Any

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nitro.rules import (
    NonceExpected,
    PublicKeyExpected,
    UserDataExpected,
    parse_rules,
)
from attestation.nitro.verifier import NitroClaims
from attestation.policy_table import PolicyTable
from attestation.rules import Rule
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nitro.samples import (
    AT,
    NONCE,
    PCRS,
    POLICY,
    PUBLIC_KEY,
    USER_DATA,
    Document,
    good_document,
    with_members,
)


def _claims(document: Document) -> NitroClaims:
    return VERIFIER.verify(document.to_bytes(), at=AT, log=CheckLog())


def _read(values: dict[str, Any]) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    rules = parse_rules(PolicyTable("nitro.", values, problems))
    return [rule.name for rule in rules], problems


def test_a_full_table_gives_every_rule() -> None:
    assert _read(POLICY) == (["debug_off", "document_age", "measurements"], [])


def test_reference_values_are_left_out_aloud() -> None:
    policy = {**POLICY, "measurements": {"mode": "not_checked"}}

    assert _read(policy) == (["debug_off", "document_age"], [])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"debug": "allowed"}, "nitro.debug: want"),
        ({"max_age_s": 0}, "nitro.max_age_s: want"),
        ({"max_age_s": 86401}, "nitro.max_age_s: want"),
        ({"extra": 1}, "nitro.extra: unknown key"),
        ({"measurements": {"mode": "required"}}, "nitro.measurements.mode: required, but"),
        ({"measurements": {"mode": "not_checked", "pcr0": []}}, "pcr0: unknown key"),
        ({"measurements": {"mode": "required", "pcr0": []}}, "pcr0: empty"),
        ({"measurements": {"mode": "required", "pcr0": ["00"]}}, "pcr0: '00'"),
        ({"measurements": {"mode": "required", "pcr32": ["00" * 48]}}, "pcr32: unknown key"),
    ],
)
def test_problems_are_named(changes: dict[str, Any], problem: str) -> None:
    _, problems = _read({**POLICY, **changes})

    assert any(problem in each for each in problems), problems


@pytest.mark.parametrize("key", sorted(POLICY))
def test_no_key_may_be_missing(key: str) -> None:
    _, problems = _read({name: value for name, value in POLICY.items() if name != key})

    assert f"nitro.{key}: missing" in problems


@pytest.mark.parametrize(
    "rule",
    [
        NonceExpected(nonce=NONCE),
        PublicKeyExpected(public_key=PUBLIC_KEY),
        UserDataExpected(user_data=USER_DATA),
    ],
)
def test_bindings_hold_by_value(rule: Rule[NitroClaims]) -> None:
    rule.require(_claims(good_document()))


@pytest.mark.parametrize(
    "rule",
    [
        NonceExpected(nonce=b""),
        PublicKeyExpected(public_key=b""),
        UserDataExpected(user_data=b""),
    ],
)
def test_nothing_expected_is_no_binding(rule: Rule[NitroClaims]) -> None:
    claims = _claims(with_members(("public_key",), nonce=b"", user_data=b""))

    with pytest.raises(AttestationError):
        rule.require(claims)


def test_a_pcr_that_the_document_lacks_is_no_match() -> None:
    policy = {**POLICY, "measurements": {"mode": "required", "pcr20": ["00" * 48]}}
    rules = parse_rules(PolicyTable("nitro.", policy, []))

    with pytest.raises(AttestationError) as caught:
        rules[-1].require(_claims(good_document()))

    assert caught.value.code == "measurement_mismatch"


def test_claims_say_what_is_verified() -> None:
    claims = _claims(good_document())
    shown = dict(claims.fields())

    assert claims.not_after == AT + timedelta(hours=3)
    assert shown["pcr0"] == PCRS[0].hex()
    assert shown["module_id"] == "i-0-enc0"
    assert shown["trust_anchor"] == "nitro test root"
