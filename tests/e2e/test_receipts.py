"""Can a client prove later what it was answered, with nothing but the commands that ship?"""

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.e2e.support import Installation


def starshade(running: Installation, *arguments: str) -> Result:
    """As on a command line of this installation's owner."""
    env = {"STARSHADE_API_KEY": running.key, "COLUMNS": "200"}
    return CliRunner().invoke(main, arguments, env=env)


def verify(running: Installation, receipt_id: str, *options: str) -> Result:
    url = f"{running.base_url}/v1/receipts/{receipt_id}"
    ca_file = str(running.config.paths.ca_cert)
    policy = ("--policy", "development")
    return starshade(running, "receipt", "verify", url, "--ca-file", ca_file, *policy, *options)


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_sent_and_received_is_what_the_gateway_signed(
    running: Installation, tmp_path: Path, stream: bool
) -> None:
    request = json.dumps(running.body(stream=stream)).encode()
    with running.http() as client:
        headers = {"content-type": "application/json"}
        response = client.post("/v1/chat/completions", content=request, headers=headers)
    (tmp_path / "request").write_bytes(request)
    (tmp_path / "response").write_bytes(response.content)
    bodies = ("--request", str(tmp_path / "request"), "--response", str(tmp_path / "response"))
    receipt_id = response.headers["starshade-receipt"]
    result = verify(running, receipt_id, *bodies, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert [check["outcome"] for check in document["checks"]] == ["pass"] * 3
    assert document["receipt"]["outcome"] == "complete"
    (tmp_path / "response").write_bytes(response.content.replace(b"assistant", b"assistent"))
    assert verify(running, receipt_id, *bodies).exit_code == 1


def test_the_unmodified_client_finds_its_receipt(running: Installation) -> None:
    with running.openai() as client:
        raw = client.chat.completions.with_raw_response.create(**running.body())
    result = verify(running, raw.headers["starshade-receipt"])
    assert result.exit_code == 0, result.output
    assert "VERIFIED; THE TEE IS SIMULATED" in result.output


def test_a_client_s_receipt_shows_that_the_log_was_cut(
    running: Installation, tmp_path: Path
) -> None:
    with running.http() as client:
        receipt_id = client.post("/v1/chat/completions", json=running.body()).headers[
            "starshade-receipt"
        ]
        (tmp_path / "mine").write_bytes(client.get(f"/v1/receipts/{receipt_id}").content)
    with (
        sqlite3.connect(running.config.paths.gateway_db) as live,
        sqlite3.connect(tmp_path / "gateway.db") as copy,
    ):
        live.backup(copy)
    arguments = ("audit", "verify", "--state-dir", str(tmp_path), "--receipt")
    whole = starshade(running, *arguments, str(tmp_path / "mine"))
    assert whole.exit_code == 0, whole.output
    with sqlite3.connect(tmp_path / "gateway.db") as copy:
        copy.execute("DELETE FROM receipt")
        copy.execute("DELETE FROM audit_event WHERE seq >= 2")
    cut = starshade(running, *arguments, str(tmp_path / "mine"))
    assert (cut.exit_code, "[audit_truncated]" in cut.output) == (1, True)
