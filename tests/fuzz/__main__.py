"""``python -m tests.fuzz``: damaged inputs for every parser of outside bytes, by the million.

A million inputs for each parser take about three hours on two cores, twenty thousand four minutes.
Exit 1 on a failure; its input is kept under test-artifacts/fuzz and can be tried again alone with
``--file``.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.fuzz.driver import Failure, Target, fuzz_apart, try_input
from tests.fuzz.targets import TARGETS, load_target

_FAILURES = Path(__file__).resolve().parents[2] / "test-artifacts" / "fuzz"


def main(arguments: Sequence[str]) -> int:
    """Fuzzes the parsers asked for, a few at a time, and prints one line each."""
    options = _parser().parse_args(arguments)
    names = options.parser or list(TARGETS)
    if options.file:
        problem = try_input(load_target(names[0]), options.file.read_bytes())
        click.echo(problem or "no problem")
        return 1 if problem else 0
    targets = [load_target(name) for name in names]  # before the threads: they fork
    started = time.monotonic()
    with ThreadPoolExecutor(options.workers) as pool:
        outcomes = list(pool.map(lambda target: _fuzz(target, options), targets))
    num_bad = sum(outcome is not None for outcome in outcomes)
    click.echo(
        f"{len(targets)} parsers, {options.inputs} inputs each, seed {options.seed}: "
        f"{num_bad} failed, {time.monotonic() - started:.0f} s"
    )
    return 1 if num_bad else 0


def _fuzz(target: Target, options: argparse.Namespace) -> Failure | None:
    started = time.monotonic()
    failure = fuzz_apart(
        target,
        num_inputs=options.inputs,
        seed=options.seed,
        show=lambda line: click.echo(f"\r{line}", nl=False, err=True),
    )
    seconds = time.monotonic() - started
    if failure is None:
        rate = options.inputs / seconds
        click.echo(
            f"\r{target.name:24}{options.inputs:>9} inputs {seconds:>8.1f} s {rate:>9,.0f}/s"
        )
    else:
        click.echo(f"\r{target.name:24}FAILED at input {failure.index}: {failure.save(_FAILURES)}")
        click.echo(failure.problem)
    sys.stdout.flush()
    return failure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each parser")
    parser.add_argument("--parser", action="append", choices=list(TARGETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--file", type=Path, help="one input, to be tried alone")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
