"""Reference values in files beside a policy are part of it, and cannot come from elsewhere."""

import os
from pathlib import Path

import pytest

from attestation.errors import PolicyError
from attestation.policy import load_policy, parse_policy
from attestation.reference_files import (
    MAX_REFERENCE_BYTES,
    MAX_REFERENCE_FILE_BYTES,
    folder_reader,
)
from attestation.tdx.rules import MeasurementsExpected
from tests.attestation.test_policy import GOOD

_MRTD = ("ab" * 48, "cd" * 48)
_INLINE = f'mode = "required"\nmrtd = ["{_MRTD[0]}", "{_MRTD[1]}"]'
_FROM_FILE = 'mode = "required"\nmrtd = { file = "values/mrtd.txt" }'


def _policy(tmp_path: Path, measurements: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(GOOD.replace('mode = "not_checked"', measurements, 1))
    return path


def _values(tmp_path: Path, text: str) -> None:
    (tmp_path / "values").mkdir(exist_ok=True)
    (tmp_path / "values" / "mrtd.txt").write_text(text)


def test_a_file_is_the_same_policy_as_its_values(tmp_path: Path) -> None:
    _values(tmp_path, f"# golden\n\n{_MRTD[0]}  # first\n{_MRTD[1]}\n")

    from_file = load_policy(_policy(tmp_path, _FROM_FILE))

    assert from_file == load_policy(_policy(tmp_path, _INLINE))
    (rule,) = (r for r in from_file.rules["tdx"] if isinstance(r, MeasurementsExpected))
    assert rule.values == (("mrtd", frozenset(_MRTD)),)


def test_another_value_is_another_digest(tmp_path: Path) -> None:
    _values(tmp_path, _MRTD[0])
    first = load_policy(_policy(tmp_path, _FROM_FILE)).sha256
    _values(tmp_path, _MRTD[1])

    assert load_policy(_policy(tmp_path, _FROM_FILE)).sha256 != first


@pytest.mark.parametrize(
    ("text", "problem"), [("", "empty"), ("# none\n", "empty"), ("abcd", "'abcd'")]
)
def test_values_are_held_to_the_same_rules(tmp_path: Path, text: str, problem: str) -> None:
    _values(tmp_path, text)

    with pytest.raises(PolicyError, match=problem):
        load_policy(_policy(tmp_path, _FROM_FILE))


def test_a_name_does_not_step_out_and_in_again(tmp_path: Path) -> None:
    _values(tmp_path, _MRTD[0])
    for name in ("values/../values/mrtd.txt", f"{tmp_path}/values/mrtd.txt"):
        path = _policy(tmp_path, f'mode = "required"\nmrtd = {{ file = "{name}" }}')

        with pytest.raises(PolicyError, match="not a file below"):
            load_policy(path)


def test_a_file_has_at_most_a_mebibyte(tmp_path: Path) -> None:
    read = folder_reader(tmp_path)
    (tmp_path / "most").write_bytes(b"#" * 1048576)
    (tmp_path / "more").write_bytes(b"#" * 1048577)

    assert len(read("most")) == 1048576
    with pytest.raises(PolicyError, match="'more' has more than 1048576 bytes"):
        read("more")


def test_a_file_is_text(tmp_path: Path) -> None:
    _values(tmp_path, "")
    (tmp_path / "values" / "mrtd.txt").write_bytes(b"\xff")

    with pytest.raises(PolicyError, match="is not text"):
        load_policy(_policy(tmp_path, _FROM_FILE))


@pytest.mark.parametrize(
    "name",
    ["/etc/hostname", "../mrtd.txt", "none.txt", "", "loop", "pipe", "folder", "a\\u0000b"],
)
def test_files_lie_below_the_policys_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "mrtd.txt").write_text(_MRTD[0])
    (tmp_path / "inner" / "folder").mkdir(parents=True)
    (tmp_path / "inner" / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "inner" / "pipe")
    path = _policy(tmp_path / "inner", f'mode = "required"\nmrtd = {{ file = "{name}" }}')

    with pytest.raises(PolicyError, match=r"policy: (cannot read|'.*' is not a file)"):
        load_policy(path)


@pytest.mark.parametrize("target", ["../mrtd.txt", "/etc/hostname"])
def test_a_link_leads_out_of_the_folder_no_more_than_a_name(tmp_path: Path, target: str) -> None:
    (tmp_path / "mrtd.txt").write_text(_MRTD[0])
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link").symlink_to(target)
    (tmp_path / "inner" / "folder").symlink_to("..")
    for name in ("link", "folder/mrtd.txt"):
        path = _policy(tmp_path / "inner", f'mode = "required"\nmrtd = {{ file = "{name}" }}')

        with pytest.raises(PolicyError, match="not a file below"):
            load_policy(path)


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    _values(tmp_path, _MRTD[0])
    (tmp_path / "link").symlink_to("values/mrtd.txt")

    load_policy(_policy(tmp_path, 'mode = "required"\nmrtd = { file = "link" }'))


def test_what_all_files_together_hold_is_bounded(tmp_path: Path) -> None:
    """Few bytes of a policy could name one large file thousands of times."""
    (tmp_path / "values").write_bytes(b"#" * MAX_REFERENCE_FILE_BYTES)
    read = folder_reader(tmp_path)
    for _ in range(8):
        read("values")

    with pytest.raises(PolicyError, match=f"more than {MAX_REFERENCE_BYTES} bytes"):
        read("values")
    assert len(folder_reader(tmp_path)("values")) == MAX_REFERENCE_FILE_BYTES


def test_what_the_system_cannot_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"cannot read 'aaa.*: File name too long"):
        folder_reader(tmp_path)("a" * 300)


def test_a_policy_without_a_folder_has_no_files() -> None:
    text = GOOD.replace('mode = "not_checked"', _FROM_FILE, 1)

    with pytest.raises(PolicyError, match="no folder"):
        parse_policy(text.encode())
