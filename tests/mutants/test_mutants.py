"""The mutation runner makes the faults it says, kills those that a test notices, and no others."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.operators import find_mutations, mutated_tree
from tests.mutants.patching import source_path
from tests.mutants.report import load_survivors
from tests.mutants.runner import load_targets

_REPO_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = '''"""Text."""
LIMIT = 3

def check(a: int, b: int) -> bool:
    """Text."""
    if a < b and not b:
        raise ValueError("code", "message")
    return a + b == 2
'''


def _changes(source: str) -> dict[str, str]:
    """Mutation to the whole text that it makes."""
    return {
        f"{one.function}: {one.change.partition(' in ')[0]}": ast.unparse(
            mutated_tree(source, one.index)
        )
        for one in find_mutations(source)
    }


def test_faults_of_a_small_module() -> None:
    changes = _changes(_SOURCE)

    assert list(changes) == [
        ": 3 -> 4",
        ": 3 -> 2",
        "check: a < b and (not b) -> a < b or not b",
        "check: a < b -> a <= b",
        "check: a < b -> a >= b",
        "check: not b -> b",
        "check: raise ValueError('code', 'message') -> pass",
        "check: 'code' -> 'codeX'",
        "check: return a + b == 2 -> return None",
        "check: a + b == 2 -> a + b != 2",
        "check: a + b -> a - b",
        "check: 2 -> 3",
        "check: 2 -> 1",
    ]
    assert len(set(changes.values())) == len(changes)
    assert ast.unparse(ast.parse(_SOURCE)) not in changes.values()


@pytest.mark.parametrize("module", load_targets().modules)
def test_every_fault_of_a_target_can_be_compiled_and_named(module: str) -> None:
    source = source_path(module).read_text()
    mutations = find_mutations(source)

    assert len({(one.function, one.change) for one in mutations}) == len(mutations) > 4
    for one in mutations[::10]:
        compile(mutated_tree(source, one.index), module, "exec")


def test_targets_and_survivors_name_what_exists() -> None:
    modules = load_targets().modules
    made = {
        (module, one.function, one.change)
        for module in modules
        for one in find_mutations(source_path(module).read_text())
    }

    assert [
        path for paths in modules.values() for path in paths if not (_REPO_ROOT / path).exists()
    ] == []
    assert load_survivors() - made == set()


def test_a_sample_is_tried(tmp_path: Path) -> None:
    """In a process of its own, since the runner must not have imported what it damages."""
    result = tmp_path / "result.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.mutants", "--module", "attestation.binding"),
            *("--sample", "12", "--seed", "3", "--json", str(result)),
        ],
        cwd=_REPO_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (module,) = json.loads(result.read_text())["modules"]
    assert module["mutations"] == 12
    assert module["killed"] + module["listed"] == 12
    assert module["survivors"] == []
