"""Which tests notice a fault?  One pytest session that runs the same tests again and again.

The session first runs every test as it is, notes which lines of the module it reaches and how long
it takes; then each fault gets a forked copy of the session, in which only the tests that reach it
run, the quickest first.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from tests.mutants import children
from tests.mutants.operators import Mutation, mutated_tree
from tests.mutants.patching import NotPatchable, patch_loaded, serve_instead, source_path

_OPTIONS = (
    *("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:terminal", "-s", "--assert=plain"),
    *("-o", "addopts=--import-mode=importlib -p no:locust"),  # none that need the terminal
)
_BASE_CPU_S = 4.0
_CPU_RATIO = 3.0  # of what the tests took as they are, traced


@dataclass(slots=True)
class Baseline:
    """What the tests do without a fault; ``broken`` are those that fail even so."""

    lines: dict[str, frozenset[int]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def reaching(self, lines: range | None) -> list[str]:
        """The tests that reach these lines, or all, the quickest first.

        A test that only reads a constant reaches no line.
        """
        names = [
            name
            for name, reached in self.lines.items()
            if lines is None or not reached.isdisjoint(lines)
        ]
        return sorted(names, key=lambda name: self.seconds[name])

    def limit_s(self, names: Sequence[str]) -> float:
        """CPU seconds after which these tests hang."""
        return _BASE_CPU_S + _CPU_RATIO * sum(self.seconds[name] for name in names)


def pytest_options(leave_out: Sequence[str]) -> list[str]:
    """The command line for the tests of a module, without their paths."""
    return [*_OPTIONS, "-k", " and ".join(f"not {name}" for name in leave_out)]


class WarmSession:
    """A pytest plugin whose loop is the trial of many mutations."""

    def __init__(self, module: str, mutations: Sequence[Mutation], num_workers: int) -> None:
        self.baseline = Baseline()
        self.outcomes: dict[int, children.Outcome] = {}
        self._module, self._mutations, self._num_workers = module, mutations, num_workers
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called once the tests are collected; True: there is nothing left to run."""
        items = {item.nodeid: item for item in session.items}
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        for name, item in items.items():
            self._observe(name, item)
        for mutation, outcome in children.run_all(self._jobs(items), num_workers=self._num_workers):
            self.outcomes[mutation.index] = outcome
        return True

    def _observe(self, name: str, item: pytest.Item) -> None:
        reached, started = LineTracer(str(source_path(self._module))), time.process_time()
        with reached:
            has_failed = self._run(item)
        if has_failed:
            self.baseline.broken.append(name)
        else:
            self.baseline.lines[name] = frozenset(reached.lines)
            self.baseline.seconds[name] = time.process_time() - started

    def _run(self, item: pytest.Item) -> bool:
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._failed

    def _jobs(
        self, items: dict[str, pytest.Item]
    ) -> Iterator[tuple[Mutation, float, Callable[[], bool | None]]]:
        source = source_path(self._module).read_text()
        for mutation in self._mutations:
            names = self.baseline.reaching(mutation.lines)
            if not mutation.is_in_body or not names:
                continue

            def judge(mutation: Mutation = mutation, names: list[str] = names) -> bool | None:
                tree = mutated_tree(source, mutation.index)
                try:
                    patch_loaded(self._module, tree, mutation.function)
                except NotPatchable:
                    return None
                return any(self._run(items[name]) for name in names)

            yield mutation, self.baseline.limit_s(names), judge


class _Only:
    """A pytest plugin: these tests alone, in this order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = {name: at for at, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order),
            key=lambda item: self._order[item.nodeid],
        )


def judge_cold(
    module: str, source: str, mutation: Mutation, names: Sequence[str], options: Sequence[str]
) -> bool:
    """Whether a new session notices; to be called in a process that has not imported ``module``."""
    serve_instead(module, mutated_tree(source, mutation.index))
    files = dict.fromkeys(name.partition("::")[0] for name in names)
    return pytest.main(["-x", *options, *files], plugins=[_Only(names)]) != pytest.ExitCode.OK


class LineTracer:
    """Notes which lines of one file run while it is entered."""

    def __init__(self, path: str) -> None:
        self.lines: set[int] = set()
        self._path = path

    def __enter__(self) -> None:
        sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if frame.f_code.co_filename == self._path else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines.add(frame.f_lineno)
        return self._on_line
