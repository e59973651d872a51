"""Is a process found where it listens, and nobody taken for one that is gone?"""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway import roles, servers
from gateway.whereabouts import Address, as_it_runs, find, noted
from tests.gateway.support import make_config
from tests.support.servers import free_port


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "gateway.json"


def members(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_it_is_there_while_the_process_serves_and_private(path: Path) -> None:
    with noted(path, host="127.0.0.1", port=19543):
        found = find(path)
        assert found is not None
        assert (found.pid, found.host, found.port) == (os.getpid(), "127.0.0.1", 19543)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.exists()


def test_a_second_process_does_not_take_its_place(path: Path) -> None:
    with noted(path, host="127.0.0.1", port=1):
        with noted(path, host="127.0.0.1", port=2):
            pass
        found = find(path)
        assert found is not None
        assert found.port == 1


def test_what_a_killed_process_left_behind_is_not_believed(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with noted(path, host="127.0.0.1", port=1):
        mine = members(path)
    path.write_text(json.dumps({**mine, "pid": child.pid}))
    assert find(path) is None
    path.write_text(json.dumps({**mine, "began_ticks": mine["began_ticks"] - 1}))
    assert find(path) is None  # its id was used again
    with noted(path, host="127.0.0.1", port=2):
        assert members(path)["port"] == 2


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b"[" * 900, b'{"pid": 1}', b"null", b'"x"']
)
def test_a_file_that_is_none_says_nothing(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    assert find(path) is None


@pytest.mark.parametrize("change", [{"port": 0}, {"port": "1"}, {"pid": True}, {"host": ""}])
def test_a_member_that_is_none_says_nothing(change: dict[str, Any]) -> None:
    good = dataclasses.asdict(Address(pid=1, began_ticks=1, host="h", port=1))
    assert Address.parse(json.dumps(good).encode()) is not None
    assert Address.parse(json.dumps({**good, **change}).encode()) is None


def test_it_serves_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with noted(tmp_path / "file" / "x.json", host="h", port=1):
        pass


def test_gateway_and_observatory_note_where_they_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {"gateway__port": free_port(), "observatory__port": free_port()}
    config, other = make_config(tmp_path, **ports), make_config(tmp_path)
    seen = list[tuple[int, int]]()

    def look(_app: object = None, listener: socket.socket | None = None, **_: object) -> None:
        found = as_it_runs(other)
        if listener is not None:
            listener.close()
        seen.append((found.gateway.port, found.observatory.port))

    monkeypatch.setattr(servers, "run_app", look)
    monkeypatch.setattr(roles, "import_by_name", lambda _: look)
    monkeypatch.setattr(roles, "_begin", lambda: None)
    servers.serve_gateway(config)
    roles.run_observatory(config)
    assert seen == [
        (config.gateway.port, other.observatory.port),
        (other.gateway.port, config.observatory.port),
    ]
    assert as_it_runs(other) == other
