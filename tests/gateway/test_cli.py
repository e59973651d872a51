"""Do the commands exist, fail in words, and keep keys where they belong?"""

import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli_support import ExitCode, Failure
from gateway.config import load_config
from gateway.dev_key import ensure_dev_key
from gateway.roles import _explained
from gateway.snippets import activation_snippet, curl_snippet, environment_snippet, openai_snippet

REPO = Path(__file__).resolve().parents[2]
CODE = re.compile(r'\bcode(?:: Final)? = "([a-z_]+)"|\bcode="([a-z_]+)"')
COMMAND_FILES = (
    *("roles", "preflight", "keys_cli", "models_cli", "models", "sockets", "config_sources"),
    *("supervisor", "up"),
)


@pytest.mark.parametrize("name", sorted(main.list_commands(click.Context(main))))
def test_every_listed_command_can_be_loaded(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", name, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_the_version_is_told_installed_or_not() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("starshade ")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["dwon"]).exit_code == ExitCode.USAGE


def test_a_usage_error_passes_no_control_on_to_the_terminal(tmp_path: Path) -> None:
    """Neither of a file's name nor of what is in it, and no line of its own."""
    settings = tmp_path / "fetch.toml"
    settings.write_text('"\\u001b[32m\\nACCEPTED" = 1\n')
    name = "none\x1b[31m\nACCEPTED"
    for arguments in (
        ("show", name),
        ("verify", __file__, "--trust-anchor", name),
        ("verify", __file__, "--policy", name),
        ("policy", "check", name),
        ("fetch", __file__, "--fetch-config", str(settings)),
    ):
        result = CliRunner().invoke(main, ["attest", *arguments], color=True)

        assert result.exit_code == ExitCode.USAGE
        assert "\\x1b[3" in result.output, arguments
        assert "\x1b" not in result.output
        assert "\nACCEPTED" not in result.output


def test_output_that_cannot_be_written_is_told_in_words() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gateway.cli", "attest", "policy", "check", "production"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitCode.INTERNAL
    assert done.stderr.startswith("error: cannot write: No space left on device [internal]\nnext: ")


@pytest.mark.parametrize("option", ["--state-dir", "--cache-dir"])
def test_a_variable_that_was_not_set_names_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["keys", "list", "--state-dir", "state", option, ""])
    assert (done.exit_code, "want a path" in done.stderr) == (ExitCode.USAGE, True)
    assert not list(tmp_path.iterdir())


def test_all_configuration_problems_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "starshade.toml"
    file.write_text("[gateway]\nport = 0\nprot = 1\n")
    result = CliRunner().invoke(main, ["serve", "--config", str(file)])
    assert result.exit_code == ExitCode.USAGE
    assert result.output.count("  - gateway.") == 2
    assert "docs/configuration.md" in result.output


def test_a_key_is_shown_once_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    state = ["--state-dir", str(tmp_path / "s")]
    made = CliRunner().invoke(main, ["keys", "create", "--label", "ci", *state])
    key = made.stdout.strip()
    assert re.fullmatch(r"sk-starshade-[\w-]{43}", key)
    listed = CliRunner().invoke(main, ["keys", "list", *state])
    assert "ci" in listed.output
    assert key not in listed.output
    files = [p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()]
    assert not any(key.encode() in content for content in files)
    key_id = listed.output.splitlines()[1].split()[0]
    assert key_id in made.stderr
    assert CliRunner().invoke(main, ["keys", "revoke", key_id, *state]).exit_code == 0
    again = CliRunner().invoke(main, ["keys", "revoke", key_id, *state])
    assert again.exit_code == ExitCode.CHECK_FAILED
    assert "key_not_found" in again.output


@pytest.mark.parametrize("option", ["--tenant", "--label"])
def test_a_name_that_a_key_cannot_have_is_refused_in_words(tmp_path: Path, option: str) -> None:
    arguments = ["keys", "create", option, "Ärger & Co", "--state-dir", str(tmp_path / "s")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == ExitCode.USAGE
    assert f"a {option.removeprefix('--')} is 1 to 128 of" in result.output
    assert "[invalid_value]" in result.output


def test_the_development_key_is_private_and_kept_until_it_is_revoked(tmp_path: Path) -> None:
    config = load_config(flags={"state_dir": tmp_path}, environ={})
    path = config.paths.dev_api_key
    ensure_dev_key(config, now_ns=1)
    first = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ensure_dev_key(config, now_ns=2)
    assert path.read_text() == first
    listed = CliRunner().invoke(main, ["keys", "list", "--state-dir", str(tmp_path)])
    key_id = listed.output.splitlines()[1].split()[0]
    CliRunner().invoke(main, ["keys", "revoke", key_id, "--state-dir", str(tmp_path)])
    ensure_dev_key(config, now_ns=3)
    assert path.read_text() != first


@pytest.mark.parametrize("damage", [b"", b"\xe3\x28\xff", b"sk-starshade-\0\n" * 99])
def test_a_damaged_development_key_is_replaced(tmp_path: Path, damage: bytes) -> None:
    config = load_config(flags={"state_dir": tmp_path}, environ={})
    config.paths.dev_api_key.write_bytes(damage)
    ensure_dev_key(config, now_ns=1)
    assert re.fullmatch(r"sk-starshade-[\w-]{43}", config.paths.dev_api_key.read_text())


@pytest.mark.parametrize("command", [["create"], ["list"], ["revoke", "x"]])
def test_keys_say_plainly_that_the_database_is_damaged(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "gateway.db").write_bytes(b"no database" * 999)
    result = CliRunner().invoke(main, ["keys", *command, "--state-dir", str(tmp_path)])
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "[database_unavailable]" in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_failure_without_words_of_the_system_names_its_type() -> None:
    def serve() -> None:
        raise ConnectionError("secret")

    with pytest.raises(Failure, match="ConnectionError: the address to listen on"):
        _explained(serve, next_step="")


def test_a_failure_says_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("\x1b[2J two\nlines", exit_code=ExitCode.USAGE, code="x", next_step="\x9b1m").show()
    shown = capsys.readouterr().err
    assert shown == "error: \\x1b[2J two\nlines [x]\nnext:  \\x9b1m\n"


def test_strangers_cannot_fill_the_log() -> None:
    code = """
import logging
from telemetry.logs import configure_logging
configure_logging()
logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
logging.getLogger("uvicorn.error").error("ours")
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ours" in shown.stderr
    assert "Invalid" not in shown.stderr


def test_a_serving_process_leaves_no_core_dump() -> None:
    code = """
import resource, signal
from gateway.roles import _begin
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
_begin()
print(resource.getrlimit(resource.RLIMIT_CORE))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "(0, 0)"


def test_a_serving_process_takes_as_many_files_as_it_may() -> None:
    code = """
import resource
from gateway.roles import _begin
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
_begin()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "(512, 512)"


def _commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command with its help, as somebody asks for it."""
    asked = CliRunner().invoke(main, [*names, "--help"])
    assert asked.exit_code == 0, asked.output
    yield names, asked.output
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _commands(inner, *names, name)


def test_no_summary_is_cut_and_the_main_commands_have_an_example() -> None:
    texts = dict(_commands(main))
    assert len(texts) > 30
    assert [names for names, text in texts.items() if re.search(r"[^]]\.\.\.$", text, re.M)] == []
    for names in (
        "up", "serve", "worker", "connect", "demo", "doctor", "attest verify", "receipt verify",
        "audit verify", "keys create", "load run",
    ):  # fmt: skip
        assert "\n    starshade " in texts[tuple(names.split())], names


def test_the_help_names_what_is_taken_by_default() -> None:
    for command, words in (
        ("serve", ("production (default)", "8443", "~/.local/state/starshade")),
        ("doctor", ("development (default)", "8443", "8444", "~/.local/state/starshade")),
    ):
        text = CliRunner().invoke(main, [command, "--help"]).output
        assert [word for word in words if word not in " ".join(text.split())] == []


def test_snippets_name_files_not_the_key(tmp_path: Path) -> None:
    state = tmp_path / "it's a state"
    state.mkdir()
    config = load_config(flags={"state_dir": state, "gateway.host": "::"}, environ={})
    ensure_dev_key(config, now_ns=1)
    key = config.paths.dev_api_key.read_text()
    lines = environment_snippet(config)
    shown = subprocess.run(
        ["/bin/sh", "-c", f'{lines}\nprintf "%s|%s" "$SSL_CERT_FILE" "$STARSHADE_API_KEY"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == f"{state}/ca.pem|{key}"
    curl, python = curl_snippet(config, "tiny"), openai_snippet(config, "tiny")
    assert key not in lines + curl + python
    assert "https://[::1]:8443/v1/chat/completions" in shlex.split(curl)
    compile(python, "snippet", "exec")
    assert '"max_tokens": 200' in curl
    assert "max_tokens=200," in python


def test_the_virtual_environment_is_activated_where_there_is_one(tmp_path: Path) -> None:
    prefix = tmp_path / "it's a venv"
    assert activation_snippet(prefix) == ""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "activate").write_text("found=yes\n")
    shown = subprocess.run(
        ["/bin/sh", "-c", f"{activation_snippet(prefix)}printf %s $found"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == "yes"


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"STARSHADE_POLICY": "POLICY"}, "policy_invalid"),
        ({"STARSHADE_DATABASE_URL": "sqlite:////proc/none/gateway.db"}, "database_unavailable"),
        ({"STARSHADE_GATEWAY__HOST": "203.0.113.7"}, "start_failed"),
        ({"STARSHADE_GATEWAY__COLLATERAL__CA_FILE": "/no/ca.pem"}, "config_invalid"),
        ({"STARSHADE_GATEWAY__COLLATERAL__CA_FILE": "POLICY"}, "config_invalid"),
        ({"STARSHADE_GATEWAY__CLIENT_CA_FILE": "/no/ca.pem"}, "config_invalid"),
    ],
)
def test_a_gateway_that_cannot_start_says_so(
    tmp_path: Path, variables: dict[str, str], code: str
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[[rules]]\nname = 'no such rule'\n")
    given = {k: v.replace("POLICY", str(policy)) for k, v in variables.items()}
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "serve", "--state-dir", str(tmp_path / "s")],
        env={**os.environ, **given},  # noqa: TID251 - a child of a test
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"[{code}]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "next:" in done.stderr


def test_the_page_explains_every_code_of_the_commands() -> None:
    page = (REPO / "docs" / "operations.md").read_text()
    used: set[str] = set()
    for name in COMMAND_FILES:
        source = (REPO / "gateway" / f"{name}.py").read_text()
        used |= {first or second for first, second in CODE.findall(source)}
    used -= {"model_error", "invalid_value"}  # a root class, and the API's own word
    assert len(used) > 15
    assert [code for code in sorted(used) if f"`{code}`" not in page] == []
