"""Does docs/threat-model.md have every attack, each with tests that exist?"""

import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
PAGE = (REPO / "docs" / "threat-model.md").read_text("utf-8")
HERE = Path(__file__).parent
_ROW = re.compile(r"^\| (\d+) \| .+ \| .+ \| (.+) \|$", re.MULTILINE)


def test_every_attack_names_tests_that_exist() -> None:
    rows = {int(number): tests for number, tests in _ROW.findall(PAGE)}
    assert sorted(rows) == list(range(1, 26))
    for number, tests in rows.items():
        named = re.findall(r"`(tests/[\w./]+|test_\w+\.py)`", tests)
        assert named, number
        for name in named:
            path = REPO / name if name.startswith("tests/") else HERE / name
            assert path.exists(), (number, name)


def test_every_file_of_attacks_is_named() -> None:
    files = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert files == set(re.findall(r"`(test_\w+\.py)`", PAGE)) & files
