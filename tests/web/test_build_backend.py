"""When is the dashboard bundled, and what happens when it cannot be?"""

import json
import os
import sys
from pathlib import Path

import pytest

from web import build_backend
from web.build_backend import Node, bundle_dashboard, is_current

WEB = Path(build_backend.__file__).parent


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """A folder with sources of time 100 and no bundle."""
    for name in build_backend.SOURCES:
        path = tmp_path / "src" / "app.ts" if name == "src" else tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("source")
        os.utime(path, (100, 100))
    return tmp_path


def _bundle(web: Path, time_s: int) -> None:
    (web / "static").mkdir()
    for name in build_backend.OUTPUTS:
        (web / "static" / name).write_text("output")
        os.utime(web / "static" / name, (time_s, time_s))


def _use(monkeypatch: pytest.MonkeyPatch, node: Node | None) -> None:
    monkeypatch.setattr(build_backend, "_find_node", lambda: node)


@pytest.mark.parametrize(("time_s", "current"), [(99, False), (100, True), (101, True)])
def test_a_bundle_is_current_unless_a_source_is_newer(
    web: Path, time_s: int, current: bool
) -> None:
    assert not is_current(web)
    _bundle(web, time_s)
    assert is_current(web) is current


def test_a_current_bundle_needs_no_node(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundle(web, 101)
    _use(monkeypatch, None)
    assert bundle_dashboard(web)


def test_without_node_one_line_and_no_error(
    web: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _use(monkeypatch, None)
    assert not bundle_dashboard(web)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_failing_step_is_one_line_with_its_reason(
    web: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail = (sys.executable, "-c", "import sys; sys.exit('no such registry\\nmore')")
    _use(monkeypatch, Node(node=(sys.executable, "-c", "pass"), npm=fail))
    assert not bundle_dashboard(web)
    err = capsys.readouterr().err
    assert "no such registry" in err
    assert err.count("\n") == 1


def test_npm_then_node_run_in_the_folder_of_the_sources(
    web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "import sys; open('log', 'a').write(' '.join(sys.argv[1:]) + '\\n')"
    prefix = (sys.executable, "-c", log)
    _use(monkeypatch, Node(node=prefix, npm=prefix))
    assert bundle_dashboard(web)
    install, build = (web / "log").read_text().splitlines()
    assert install.startswith("ci --ignore-scripts")
    assert build == "build.mjs"


def test_node_is_required_only_when_there_is_none_and_the_bundle_is_old(
    web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_backend, "_system_node", lambda: None)
    assert build_backend._node_requirement(web) == [build_backend.NODE_REQUIREMENT]
    _bundle(web, 101)
    assert build_backend._node_requirement(web) == []


def test_lock_file_holds_no_address() -> None:
    text = (WEB / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    assert "://" not in text
    assert all("integrity" in entry for name, entry in packages.items() if name)
