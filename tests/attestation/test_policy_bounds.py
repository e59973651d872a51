"""A policy's size, the words of its problems, and which rules count as reference values."""

from dataclasses import replace
from pathlib import Path

import pytest

from attestation.errors import PolicyError
from attestation.policy import MAX_POLICY_BYTES, load_policy, parse_policy
from tests.attestation.test_policy import GOOD


def _sized(size_bytes: int) -> bytes:
    """The good policy, whose last byte counts, behind a comment."""
    text = GOOD.rstrip().encode()
    return b"#".ljust(size_bytes - len(text) - 1, b"x") + b"\n" + text


def test_a_policy_has_at_most_256_kib(tmp_path: Path) -> None:
    good = parse_policy(GOOD.encode())
    for size_bytes, is_good in ((262144, True), (262145, False)):
        data, path = _sized(size_bytes), tmp_path / f"{size_bytes}.toml"
        path.write_bytes(data)
        assert len(data) == size_bytes
        if is_good:
            assert parse_policy(data).sha256 == load_policy(path).sha256 == good.sha256
            continue
        with pytest.raises(PolicyError, match="more than 262144 bytes"):
            parse_policy(data)
        with pytest.raises(PolicyError, match="more than 262144 bytes"):
            load_policy(path)
    assert MAX_POLICY_BYTES == 262144


def test_all_problems_are_told_with_their_paths() -> None:
    text = GOOD.replace('gpu = "refused"', 'gpu = "never"').replace("= 17", "= 0")

    with pytest.raises(PolicyError) as caught:
        parse_policy(text.encode())

    assert str(caught.value) == (
        "policy: evidence.gpu: want one of required, when_present, refused; "
        "tdx.tcb.min_evaluation_data_number: want a number of at least 1"
    )


def test_sgx_is_judged_by_the_section_of_intel() -> None:
    policy = parse_policy(GOOD.replace('cpu = ["tdx"]', 'cpu = ["sgx"]').encode())

    assert policy.cpu == {"sgx"}
    assert set(policy.rules) == {"tdx"}


class _Rule:
    passed = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def require(self, claims: object) -> None:
        """Takes anything."""


@pytest.mark.parametrize(
    ("name", "is_reference"),
    [
        ("measurements", True),
        ("hardware_model", True),
        ("driver_version", True),
        ("vbios_version", True),
        ("debug_off", False),
    ],
)
def test_which_rules_compare_with_reference_values(name: str, is_reference: bool) -> None:
    policy = replace(parse_policy(GOOD.encode()), rules={"tdx": (_Rule("other"), _Rule(name))})

    assert policy.has_reference_values("tdx") == is_reference
    assert not policy.has_reference_values("snp")


@pytest.mark.parametrize(
    ("number", "told"), [(100, "; k99: unknown key"), (101, "1 more problems")]
)
def test_a_hundred_problems_are_told_and_the_others_counted(number: int, told: str) -> None:
    unknown = "".join(f"k{index:02} = 1\n" for index in range(number))

    with pytest.raises(PolicyError) as caught:
        parse_policy((unknown + GOOD).encode())

    assert str(caught.value).endswith(told)
