"""Does `starshade connect` refuse to start on a bad verdict, and serve on a good one?"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli_support import environment
from gateway.connect.target import find_key
from gateway.sockets import listen_tcp
from gateway.whereabouts import noted
from tests.gateway.support import wait_until
from tests.support.attested_gateway import Running
from tests.support.patience import PATIENCE_S
from tests.support.servers import free_port
from tests.support.tls import require_client_of, self_signed


def run(*arguments: str, **environ: str | None) -> Result:
    return CliRunner(env={"STARSHADE_API_KEY": None, **environ}).invoke(
        main, ["connect", *arguments]
    )


def test_a_simulated_gateway_is_refused_by_default_with_the_table(running: Running) -> None:
    result = run(running.url, "--ca-file", str(running.ca_file), "--port", str(free_port()))
    assert result.exit_code == 10, result.output
    assert "REJECTED" in result.stdout
    assert "untrusted_root" in result.stdout
    assert "[untrusted_root]" in result.stderr
    assert "nothing was sent" in result.stderr
    assert "--policy development" in result.stderr
    assert running.gateway.posted == []


def test_a_flipped_bit_is_refused_under_any_policy(running: Running) -> None:
    running.gateway.flip_bit = True
    result = run(running.url, "--ca-file", str(running.ca_file), "--policy", "development")
    assert result.exit_code == 10
    assert "quote_signature" in result.stdout


def test_a_gateway_that_wants_a_client_certificate_is_shown_one(
    running: Running, tmp_path: Path
) -> None:
    shown = self_signed(tmp_path)
    require_client_of(running.tls, shown)
    arguments = (running.url, "--ca-file", str(running.ca_file))
    assert run(*arguments).exit_code == 40
    certificate = ("--client-cert", str(shown[0]), "--client-key", str(shown[1]))
    result = run(*arguments, *certificate)
    assert result.exit_code == 10, result.output  # it has answered, and its TEE is simulated
    assert "untrusted_root" in result.stdout
    unlike = run(*arguments, "--client-cert", str(shown[0]), "--client-key", str(running.ca_file))
    assert unlike.exit_code == 40
    assert "no certificate with its key" in unlike.stderr


@pytest.mark.parametrize("content", ["", " \n", "sk-starshade-a\nsk-starshade-b\n", "k" * 513])
def test_a_key_file_holds_one_key_alone(tmp_path: Path, content: str) -> None:
    key = tmp_path / "key"
    key.write_text(content)
    result = run("https://127.0.0.1:1/v1", "--key-file", str(key))
    assert result.exit_code == 2
    assert "[invalid_api_key]" in result.stderr
    assert "sk-starshade" not in result.output


def test_an_empty_variable_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSHADE_API_KEY", " ")
    assert find_key(None, None) is None


def test_what_a_gateway_calls_itself_is_no_control_of_the_terminal(running: Running) -> None:
    running.gateway.mode, running.gateway.workers = "pass-through", ("worker",)
    running.gateway.replica = "owned\x1b]0;owned\x07\nnext:  run this"
    arguments = (running.url, "--ca-file", str(running.ca_file), "--policy", "development")
    with listen_tcp("127.0.0.1", 0) as taken:
        accepted = run(*arguments, "--port", str(taken.getsockname()[1]))
    assert "sealed to owned" in accepted.stdout
    assert "address_in_use" in accepted.stderr
    refused = run(*arguments, "--mode", "terminate")
    assert "session_not_accepted" in refused.stderr
    for result in (accepted, refused):
        assert "\x1b" not in result.output
        assert "\nnext:  run this" not in result.output


def test_nobody_there_exits_with_40(running: Running) -> None:
    result = run("https://127.0.0.1:1/v1", "--ca-file", str(running.ca_file))
    assert result.exit_code == 40
    assert "[evidence_unavailable]" in result.stderr
    assert "next:" in result.stderr


def test_before_the_first_start_it_says_what_to_run(tmp_path: Path) -> None:
    result = run("--state-dir", str(tmp_path))
    assert result.exit_code == 40
    assert "no gateway was started here yet" in result.stderr
    assert str(tmp_path / "ca.pem") in result.stderr
    assert "next:  run `starshade up` first" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("http://127.0.0.1:8443/v1",),
        ("https://user:pw@127.0.0.1/v1",),
        ("https://127.0.0.1/v1", "--host", "0.0.0.0"),  # noqa: S104 - refused
        ("https://127.0.0.1/v1", "--policy", "/no/such/policy.toml"),
        ("https://127.0.0.1/v1", "--key-file", "/no/such/key"),
        ("https://127.0.0.1/v1", "--client-cert", "client.pem"),
        ("https://127.0.0.1/v1", "--client-key", "client.key"),
        ("https://127.0.0.1/v1", "--proxy", "proxy:3128"),
        ("https://127.0.0.1/v1", "--proxy", "http://user:pw@127.0.0.1:3128"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "pw" not in result.output
    assert "--proxy" not in arguments or "Invalid value for --proxy" in result.output


def test_it_serves_seals_and_stops(running: Running, tmp_path: Path) -> None:
    port = free_port()
    key = tmp_path / "key"
    key.write_text("sk-starshade-kept\n")
    arguments = [
        "connect", running.url, "--ca-file", str(running.ca_file), "--policy", "development",
        "--port", str(port), "--key-file", str(key),
    ]  # fmt: skip
    log = tmp_path / "err"
    with (
        log.open("wb") as err,
        subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=err,
            env={**environment(), "XDG_CACHE_HOME": str(tmp_path)},
        ) as process,
    ):
        try:
            wait_until(lambda: _is_ready(port) or process.poll() is not None, timeout_s=60)
            answer = httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            status = process.wait(PATIENCE_S)
            assert process.stdout is not None
            shown = process.stdout.read().decode()
        finally:
            process.kill()
    assert answer.text == "GET/v1/models"
    assert dict(running.gateway.opened[0].fields)["authorization"] == "Bearer sk-starshade-kept"
    assert status == 0, log.read_text()
    assert "ACCEPTED WITH A WARNING" in shown
    said = log.read_text()
    assert f"OPENAI_BASE_URL=http://127.0.0.1:{port}/v1" in said
    assert "sk-starshade-kept" not in said + shown


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=1).status_code == 200
    except httpx.HTTPError:
        time.sleep(0.1)
        return False


def test_without_a_url_it_is_the_gateway_that_runs_here(running: Running, tmp_path: Path) -> None:
    url = httpx.URL(running.url)
    assert url.port is not None
    (tmp_path / "ca.pem").write_bytes(running.ca_file.read_bytes())
    with noted(tmp_path / "run" / "gateway.json", host=url.host, port=url.port):
        result = run("--state-dir", str(tmp_path), "--policy", "production")
    assert result.exit_code == 10, result.output
