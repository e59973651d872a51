"""The NRAS table of a policy: what it takes, and that nothing is accepted by leaving it out."""

from typing import Any

import pytest

from attestation.nras.rules import parse_rules
from attestation.policy_table import PolicyTable
from tests.attestation.nras.samples import POLICY


def _read(values: dict[str, Any]) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    rules = parse_rules(PolicyTable("nras.", values, problems))
    return [rule.name for rule in rules], problems


def test_a_full_table_gives_every_rule() -> None:
    names, problems = _read(POLICY)

    assert problems == []
    assert names == [
        "claims_version",
        "token_age",
        "nras_warning",
        "gpu_count",
        "hardware_model",
        "driver_version",
        "vbios_version",
        "device_identity",
    ]


def test_reference_values_are_left_out_aloud() -> None:
    names, problems = _read({**POLICY, "warnings": "allowed", "devices": {"mode": "not_checked"}})

    assert problems == []
    assert names == ["claims_version", "token_age"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"versions": []}, "nras.versions: empty"),
        ({"versions": ["4.0"]}, "nras.versions: '4.0'"),
        ({"max_age_s": 0}, "nras.max_age_s: want"),
        ({"max_age_s": 86401}, "nras.max_age_s: want"),
        ({"warnings": "ignored"}, "nras.warnings: want"),
        ({"extra": 1}, "nras.extra: unknown key"),
        ({"devices": {"mode": "required"}}, "nras.devices.mode: required, but"),
        ({"devices": {"mode": "not_checked", "gpus": 1}}, "nras.devices.gpus: unknown key"),
        ({"devices": {"mode": "required", "ueids": ["x"]}}, "nras.devices.ueids: 'x'"),
        ({"devices": {"mode": "required", "ueids": []}}, "nras.devices.ueids: empty"),
        ({"devices": {"mode": "required", "driver_versions": ["*"]}}, "driver_versions: '*'"),
        ({"devices": {"mode": "required", "vbios_versions": ["9"]}}, "vbios_versions: '9'"),
        ({"devices": {"mode": "required", "hardware_models": [""]}}, "hardware_models: ''"),
    ],
)
def test_problems_are_named(changes: dict[str, Any], problem: str) -> None:
    _, problems = _read({**POLICY, **changes})

    assert any(problem in each for each in problems), problems


@pytest.mark.parametrize("key", sorted(POLICY))
def test_no_key_may_be_missing(key: str) -> None:
    _, problems = _read({name: value for name, value in POLICY.items() if name != key})

    assert f"nras.{key}: missing" in problems
