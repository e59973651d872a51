"""Does `starshade load` end with the status that every command gives to such a failure?"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from attestation.errors import PolicyError
from loadtest import errors
from loadtest.cli import _exit_code, load


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.GatewayNotAttested("x"), 10),
        (errors.GatewayUnreachable("x"), 40),
        (errors.GeneratorFailed("x"), 70),
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
