"""Would our tests notice a fault in this module?  Its mutations, tried one by one."""

import importlib
import os
import pickle
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import settings

from tests.mutants import children
from tests.mutants.operators import Mutation, find_mutations
from tests.mutants.patching import source_path
from tests.mutants.sessions import Baseline, WarmSession, judge_cold, pytest_options

Fate = Literal["killed", "timeout", "survived", "unreached"]
_HEAVY = (
    *("cryptography.x509.ocsp", "cryptography.hazmat.primitives.asymmetric.rsa", "lxml.etree"),
    *("click", "rich.console", "hypothesis.strategies"),
)
_FOLDER = Path(__file__).resolve().parent


class BrokenTests(Exception):
    """The tests cannot say anything: they do not run, or fail without a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Which tests speak for which module."""

    modules: dict[str, list[str]]
    leave_out: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One mutation and what became of it."""

    mutation: Mutation
    fate: Fate


def load_targets() -> Targets:
    """From ``targets.toml``."""
    document = tomllib.loads((_FOLDER / "targets.toml").read_text())
    return Targets(modules=document["modules"], leave_out=document["common"]["leave_out"])


def try_module(
    module: str,
    targets: Targets,
    *,
    num_workers: int,
    choose: Callable[[Sequence[Mutation]], Sequence[Mutation]],
    is_listed: Callable[[Mutation], bool],
) -> tuple[Trial, ...]:
    """The fate of each chosen mutation.  Must not run in a process that imported ``module``.

    A survivor is tried once more in a new session, unless it ``is_listed`` as one.

    Raises: BrokenTests.
    """
    source = source_path(module).read_text()
    mutations = choose(find_mutations(source))
    options = pytest_options(targets.leave_out)
    arguments = [*options, *targets.modules[module]]
    baseline, outcomes = _in_child(lambda: _warm(module, mutations, arguments, num_workers))
    if baseline.broken or not any(baseline.lines.values()):
        raise BrokenTests(f"{module}: {', '.join(baseline.broken) or 'no test reaches it'}")
    again = [
        mutation
        for mutation in mutations
        if outcomes.get(mutation.index) not in ("killed", "timeout")
        and not (mutation.index in outcomes and is_listed(mutation))
    ]
    for mutation, outcome in children.run_all(
        _cold_jobs(module, source, again, baseline, options), num_workers=num_workers
    ):
        outcomes[mutation.index] = outcome
    return tuple(
        Trial(mutation=mutation, fate=_fate(outcomes.get(mutation.index))) for mutation in mutations
    )


def _fate(outcome: children.Outcome | None) -> Fate:
    if outcome is None:
        return "unreached"
    return "killed" if outcome == "unusable" else outcome


def _warm(
    module: str, mutations: Sequence[Mutation], options: Sequence[str], num_workers: int
) -> tuple[Baseline, dict[int, children.Outcome]]:
    session = WarmSession(module, mutations, num_workers)
    code = pytest.main(list(options), plugins=[session])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise BrokenTests(f"{module}: pytest ended with {code}")
    return session.baseline, session.outcomes


def _cold_jobs(
    module: str,
    source: str,
    mutations: Sequence[Mutation],
    baseline: Baseline,
    options: Sequence[str],
) -> Iterator[tuple[Mutation, float, Callable[[], bool | None]]]:
    """What only an import shows: module level, what could not be patched, and warm survivors."""
    for mutation in mutations:
        names = baseline.reaching(mutation.lines if mutation.is_in_body else None)
        if not names:
            continue

        def judge(mutation: Mutation = mutation, names: list[str] = names) -> bool:
            return judge_cold(module, source, mutation, names, options)

        yield mutation, 4 + baseline.limit_s(names), judge


def _in_child(
    work: Callable[[], tuple[Baseline, dict[int, children.Outcome]]],
) -> tuple[Baseline, dict[int, children.Outcome]]:
    """The result of ``work`` in a process of its own, whose imports are forgotten with it."""
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            try:
                pickle.dump(work(), file)
                file.flush()
            except Exception:
                traceback.print_exc()  # the process ends here
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        file.seek(0)
        try:
            baseline, outcomes = pickle.load(file)  # noqa: S301 - what our own child wrote
        except EOFError as err:
            raise BrokenTests("the tests could not be run") from err
    return baseline, outcomes


def prepare() -> None:
    """Imports what all tests need, once for all forks, and makes hypothesis repeatable."""
    for name in _HEAVY:
        importlib.import_module(name)
    settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutants")
