"""Does `starshade observatory` read the same configuration as every other process?"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli_support import ExitCode
from tests.gateway.support import wait_until
from tests.support.patience import PATIENCE_S
from tests.support.servers import free_port


def test_flag_variable_and_file_are_read_as_everywhere(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "starshade.toml"
    file.write_text(f'state_dir = "state #1"\n[observatory]\nport = {free_port()}\n')
    environ = {name: value for name, value in _environ().items() if name != "XDG_STATE_HOME"}
    with subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "observatory", "--config", str(file)],
        env=environ | {"STARSHADE_OBSERVATORY__PORT": str(port)},
    ) as process:
        try:
            wait_until(lambda: _lives(port), timeout_s=PATIENCE_S)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(PATIENCE_S)
    assert status == ExitCode.SUCCESS
    database = tmp_path / "state #1" / "telemetry.db"
    assert database.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "variable", "key"),
    [
        ((), {"STARSHADE_OBSERVATORY__PROT": "1"}, "observatory.prot"),
        (("--host", "192.0.2.1"), {}, "observatory.host"),
        (("--port", "0"), {}, "observatory.port"),
        (("--database-url", "mysql://u:hunter2@h/d"), {}, "observatory.database_url"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    tmp_path: Path, arguments: tuple[str, ...], variable: dict[str, str], key: str
) -> None:
    command = ["observatory", "--state-dir", str(tmp_path / "s"), *arguments]
    result = CliRunner().invoke(main, command, env=variable)
    assert result.exit_code == ExitCode.USAGE
    assert f"  - {key} (from " in result.output
    assert "hunter2" not in result.output
    assert not (tmp_path / "s").exists()


def _environ() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - of a child


def _lives(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).is_success
    except httpx.HTTPError:
        return False
