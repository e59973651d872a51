"""``python -m tests.fuzz``: damaged inputs for every parser of outside bytes, by the million.

A million inputs for each parser take about an hour on two idle cores, twenty thousand one minute.
Exit 1 on a failure; its input is kept under test-artifacts/fuzz and can be tried again alone with
``--file``.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
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
    targets = [load_target(name) for name in names]
    started = time.monotonic()
    num_bad = _in_workers(targets, options)
    click.echo(
        f"{len(targets)} parsers, {options.inputs} inputs each, seed {options.seed}: "
        f"{num_bad} failed, {time.monotonic() - started:.0f} s"
    )
    return 1 if num_bad else 0


def _in_workers(targets: Sequence[Target], options: argparse.Namespace) -> int:
    """How many targets failed.  Processes take them from a pipe, one byte each.

    Not threads: every target is forked off, and a lock that another thread holds just then would
    stay held in the child.
    """
    reading, writing = os.pipe()
    os.write(writing, bytes(range(len(targets))))
    os.close(writing)
    sys.stdout.flush()
    pids = [_worker(reading, targets, options) for _ in range(options.workers)]
    os.close(reading)
    return sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


def _worker(reading: int, targets: Sequence[Target], options: argparse.Namespace) -> int:
    pid = os.fork()
    if pid:
        return pid
    num_bad = len(targets)  # unless it gets to its end
    try:
        jobs = iter(lambda: os.read(reading, 1), b"")
        outcomes = [_fuzz(targets[job[0]], options) for job in jobs]
        num_bad = sum(outcome is not None for outcome in outcomes)
    except BaseException:
        traceback.print_exc()  # the process ends here
    finally:
        os._exit(num_bad)


def _fuzz(target: Target, options: argparse.Namespace) -> Failure | None:
    started = time.monotonic()
    failure = fuzz_apart(
        target,
        num_inputs=options.inputs,
        seed=options.seed,
        show=_show if sys.stderr.isatty() else lambda line: None,
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


def _show(line: str) -> None:
    click.echo(f"\r{line}", nl=False, err=True)


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
