"""Does `starshade load` end with the status that every command gives to such a failure?"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from attestation.errors import PolicyError
from loadtest import errors
from loadtest.cli import _database, _exit_code, load
from telemetry.db.engine import migrate, open_engine


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.GatewayNotAttested("x"), 10),
        (errors.GatewayUnreachable("x"), 40),
        (errors.GeneratorFailed("x"), 70),
        (errors.DatabaseUnusable("x"), 1),
        (errors.ProfileError("x"), 2),
        (errors.CredentialMissing("x"), 2),
        (PolicyError("x"), 2),
    ],
)
def test_exit_code(error: Exception, status: int) -> None:
    assert _exit_code(error) == status


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("no-such",), "profile_invalid", "starshade load profiles"),
        (("smoke",), "api_key_missing", "starshade up"),
    ],
)
def test_errors_have_the_shape_of_all_commands(
    tmp_path: Path, arguments: tuple[str, ...], code: str, words: str
) -> None:
    command = ["run", *arguments, "--state-dir", str(tmp_path)]
    done = CliRunner(env={"STARSHADE_API_KEY": None}).invoke(load, command)
    error, step = done.stderr.splitlines()
    assert (done.exit_code, done.stdout) == (2, "")
    assert error.startswith("error: ")
    assert error.endswith(f"[{code}]")
    assert step.startswith("next:  ")
    assert words in step


@pytest.mark.parametrize("url", ["", "nonsense", "sqlite://", "sqlite:////proc/x.db", "foo://h"])
def test_a_database_that_cannot_be_used_is_no_traceback(url: str) -> None:
    with pytest.raises(errors.DatabaseUnusable, match="cannot be stored"), _database(url):
        pass


def test_a_database_of_a_newer_version_is_no_traceback(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/telemetry.db"
    engine = open_engine(url)
    migrate(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(errors.DatabaseUnusable, match="DatabaseNewer"), _database(url):
        pass
