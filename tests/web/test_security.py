"""Who is answered, and what may the answered page do?"""

import logging
import queue
import sqlite3
from contextlib import closing
from logging.handlers import QueueHandler
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.patience import PATIENCE_S
from tests.web.conftest import NOW_NS
from tests.web.observatory import Observatory, serve
from web.app import create_app
from web.cli import observatory as command
from web.security import host_name


@pytest.mark.parametrize("path", ["/", "/api/workers", "/healthz", "/favicon.ico", "/nothing"])
def test_every_answer_carries_the_headers(observatory: Observatory, path: str) -> None:
    headers = observatory.client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8444", "[::1]:8444", "LOCALHOST:1"])
def test_loopback_names_are_answered(observatory: Observatory, host: str) -> None:
    assert observatory.client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.", ""])
def test_foreign_names_are_not(observatory: Observatory, host: str) -> None:
    for path in ("/", "/api/requests", "/healthz"):
        answer = observatory.client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert answer.json()["code"] == "unknown_host"


def test_a_configured_name_is_answered(database_url: str, tmp_path: Path) -> None:
    app = create_app(database_url, static_dir=tmp_path, hosts=("obs.example",))
    with serve(app) as running:
        assert running.client.get("/healthz", headers={"host": "obs.example:9"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "name"),
    [("A.b:80", "a.b"), ("[::1]:80", "[::1]"), ("::1", "[::1]"), ("", ""), ("a", "a")],
)
def test_host_name(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nothing", 404, "not_found"), ("POST", "/api/runs", 405, "method_not_allowed")],
)
def test_errors_are_problems_with_a_code(
    observatory: Observatory, method: str, path: str, status: int, code: str
) -> None:
    answer = observatory.client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code


def test_a_crash_is_a_problem_too_and_logs_no_values(
    observatory: Observatory, tmp_path: Path
) -> None:
    records: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = QueueHandler(records)  # formats each record, traceback included
    logging.getLogger("uvicorn.error").addHandler(handler)
    with closing(sqlite3.connect(tmp_path / "state folder" / "telemetry.db")) as connection:
        connection.execute("DROP TABLE request")
    answer = observatory.client.get("/api/overview?model=canary-7f3a91")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    logged = records.get(timeout=PATIENCE_S).getMessage()  # written after the answer
    logging.getLogger("uvicorn.error").removeHandler(handler)
    assert "no such table" in logged
    assert "canary" not in logged


def test_plain_page_without_the_bundle(observatory: Observatory) -> None:
    answer = observatory.client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text.count("<table>") == 4
    for forbidden in ("<script", "style=", "http://", "https://"):
        assert forbidden not in answer.text


def test_bundle_is_served_with_its_files(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>bundled</title>")
    (tmp_path / "app.js").write_text("1;")
    app = create_app(database_url, static_dir=tmp_path, clock_ns=lambda: NOW_NS)
    with serve(app) as running:
        assert "bundled" in running.client.get("/").text
        script = running.client.get("/static/app.js")
        assert "javascript" in script.headers["content-type"]
        assert running.client.get("/static/../secret").status_code == 404
        assert running.client.get("/static/%2e%2e/secret").status_code == 404


def test_command_serves_from_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[dict[str, object]] = []
    monkeypatch.setattr("web.cli.uvicorn.run", lambda app, **kw: called.append({"app": app, **kw}))
    state_dir = tmp_path / "my state"
    outcome = CliRunner().invoke(command, ["--state-dir", str(state_dir), "--port", "0"])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output == ""
    assert (called[0]["host"], called[0]["port"]) == ("127.0.0.1", 0)
    wide = CliRunner().invoke(command, ["--state-dir", str(state_dir), "--host", "192.0.2.1"])
    assert "not loopback" in wide.output
