"""Do the commands give a key the rights that were asked for, and a tenant its limits?"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.auth import Scope
from gateway.cli import main
from gateway.cli_support import ExitCode
from gateway.keys_cli import SCOPES


def run(state_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--state-dir", str(state_dir)])


def first_id(state_dir: Path) -> str:
    return run(state_dir, "list").stdout.splitlines()[1].split()[0]


def test_the_scopes_of_the_command_are_those_there_are() -> None:
    assert set(SCOPES) == set(Scope)


def test_a_key_is_listed_with_its_rights(tmp_path: Path) -> None:
    rights = ("--scope", "chat", "--scope", "admin", "--priority", "-1", "--expires-in", "90d")
    assert run(tmp_path, "create", "--label", "ci", "--tenant", "acme", *rights).exit_code == 0
    (line,) = run(tmp_path, "list").stdout.splitlines()[1:]
    assert re.search(r" ci +acme +admin,chat +-1 +20\S+ \S+Z +20\S+ \S+Z +- *$", line)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--scope", "root"),
        ("--priority", "3"),
        ("--expires-in", "soon"),
        ("--expires-in", "36501d"),
    ],
)
def test_rights_that_do_not_exist_are_a_usage_error(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    assert run(tmp_path, "create", *arguments).exit_code == ExitCode.USAGE


def test_rotation_prints_a_new_key_and_dates_the_old_one(tmp_path: Path) -> None:
    old = run(tmp_path, "create").stdout.strip()
    key_id = first_id(tmp_path)
    rotated = run(tmp_path, "rotate", key_id)
    assert re.fullmatch(r"sk-starshade-[\w-]{43}", rotated.stdout.strip())
    assert rotated.stdout.strip() != old
    assert re.search(rf"^the old key, {key_id}, works until 20\S+ \S+Z$", rotated.stderr, re.M)
    listed = run(tmp_path, "list").stdout
    assert len(listed.splitlines()) == 3
    assert rotated.stdout.strip() not in listed
    assert run(tmp_path, "rotate", key_id, "--grace", "0s").exit_code == 0
    gone = run(tmp_path, "rotate", key_id)
    assert gone.exit_code == ExitCode.CHECK_FAILED
    assert "key_not_found" in gone.output


def test_a_time_beyond_what_is_stored_is_a_usage_error(tmp_path: Path) -> None:
    assert run(tmp_path, "create", "--expires-in", "36500d").exit_code == 0
    key_id = first_id(tmp_path)
    assert run(tmp_path, "rotate", key_id, "--grace", "999999d").exit_code == ExitCode.USAGE
    assert run(tmp_path, "rotate", key_id, "--grace", "36500d").exit_code == 0


@pytest.mark.parametrize("tenant", ["[/]", "\x1b[31m", "\udcff", "a b", ""])
@pytest.mark.parametrize("change", [(), ("--reset",)])
def test_no_limits_are_shown_of_what_is_no_tenant(
    tmp_path: Path, tenant: str, change: tuple[str, ...]
) -> None:
    refused = run(tmp_path, "limits", tenant, *change)
    assert (refused.exit_code, "invalid_value" in refused.stderr) == (ExitCode.USAGE, True)


def test_a_damaged_row_is_shown_without_controls(tmp_path: Path) -> None:
    run(tmp_path, "create")
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database, database:
        database.execute("UPDATE api_key SET label = '[/]' || char(27)")
    assert "[/]\\x1b" in run(tmp_path, "list").stdout


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, "create")
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    refused = run(tmp_path, "create")
    assert (refused.exit_code, refused.stdout) == (ExitCode.CHECK_FAILED, "")
    assert "[database_newer]\nnext:  install the Starshade that made it" in refused.stderr


def test_an_empty_list_says_what_to_do(tmp_path: Path) -> None:
    listed = run(tmp_path, "list")
    assert len(listed.stdout.splitlines()) == 1
    assert "next:  `starshade keys create`" in listed.stderr
    run(tmp_path, "create")
    assert run(tmp_path, "list").stderr == ""


def test_what_no_terminal_shows_is_not_padded(tmp_path: Path) -> None:
    run(tmp_path, "create", "--label", "a label")
    lines = run(tmp_path, "list").stdout.splitlines()
    assert lines == [line.rstrip() for line in lines]


def test_limits_are_set_one_by_one_and_taken_back(tmp_path: Path) -> None:
    assert len(run(tmp_path, "limits").stdout.splitlines()) == 1
    run(tmp_path, "limits", "acme", "--requests-per-minute", "60")
    run(tmp_path, "limits", "acme", "--open-requests", "0")
    shown = run(tmp_path, "limits").stdout.splitlines()[1].split()
    assert shown == ["acme", "60", "default", "none"]
    run(tmp_path, "limits", "acme", "--reset")
    assert run(tmp_path, "limits", "acme").stdout.splitlines()[1].split() == [
        "acme",
        *["default"] * 3,
    ]
    for arguments in (
        ("--reset",),
        ("a b", "--open-requests", "1"),
        ("acme", "--open-requests", "-1"),
    ):
        assert run(tmp_path, "limits", *arguments).exit_code == ExitCode.USAGE


def test_every_change_of_limits_is_in_the_audit_log(tmp_path: Path) -> None:
    run(tmp_path, "limits", "acme", "--open-requests", "3")
    run(tmp_path, "limits", "acme", "--reset")
    shown = CliRunner().invoke(main, ["audit", "show", "--state-dir", str(tmp_path)]).stdout
    assert shown.count("limits_changed") == 2
    verified = CliRunner().invoke(main, ["audit", "verify", "--state-dir", str(tmp_path)])
    assert verified.exit_code == 0
