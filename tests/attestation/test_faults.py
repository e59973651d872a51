"""The page of known faults names tests and vectors that are there, for every fault."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[1]
_ROW = re.compile(r"\| (\d+) \| [^|]+ \| ([^|]+) \|")
_NUM_FAULTS = 32


def _exists(named: str) -> bool:
    file, _, name = named.partition("::")
    path = (_ROOT if file.startswith("tests/") else _FOLDER) / file
    return path.is_file() and (not name or f"def {name}(" in path.read_text())


def test_every_fault_has_tests_that_are_there() -> None:
    rows = _ROW.findall((_FOLDER / "faults.md").read_text())
    named = {number: re.findall(r"`([^`]+)`", tests) for number, tests in rows}

    assert [int(number) for number in named] == list(range(1, _NUM_FAULTS + 1))
    assert [n for tests in named.values() for n in tests if not _exists(n)] == []
    assert all(named.values())
