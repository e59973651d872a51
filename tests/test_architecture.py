"""Is the installed tree ours, and do its parts stand where the layout says?"""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gateway", "attestation", "runtime", "telemetry", "loadtest", "web")


@pytest.mark.parametrize("name", PACKAGES)
def test_installed_name_is_ours(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve().parent == ROOT / name


@pytest.mark.parametrize("name", PACKAGES)
def test_package_is_typed(name: str) -> None:
    assert (ROOT / name / "py.typed").is_file()


def test_every_test_folder_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_every_module_says_which_question_it_answers() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.py")
        if "node_modules" not in path.parts and "migrations" not in path.parts
        if path.read_text("utf-8").strip()
        and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []
