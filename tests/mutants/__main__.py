"""``python -m tests.mutants``: do the tests of verifier, chain, policy and binding code notice?

All modules take about half an hour on two idle cores, one module half a minute.
Exit 1: fewer than 95 % of the mutations were killed, a survivor is not listed with its reason in
survivors.toml, one that is listed does not survive, or tests fail without any fault.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tests.mutants.operators import Mutation
from tests.mutants.report import HEADER, Listed, Row, judge, load_survivors
from tests.mutants.runner import BrokenTests, Targets, load_targets, prepare, try_module

MIN_KILLED_RATIO = 0.95


def main(arguments: Sequence[str]) -> int:
    """Tries each module asked for; prints a table, one row a module, then what survived."""
    targets, listed = load_targets(), load_survivors()
    options = _parser(targets).parse_args(arguments)
    prepare()
    click.echo(HEADER)
    rows: list[Row] = []
    has_broken = False
    for module in options.module or targets.modules:
        try:
            row = _try(module, targets, listed, options)
        except BrokenTests as err:
            has_broken = True
            click.echo(f"{module:34} {err}")
            continue
        rows.append(row)
        for line in row.lines():
            click.echo(line)
        sys.stdout.flush()
    num_tried = sum(len(row.trials) for row in rows)
    ratio = sum(row.num_killed for row in rows) / max(1, num_tried)
    click.echo(f"{num_tried} mutations, {ratio:.1%} killed, want {MIN_KILLED_RATIO:.0%}")
    if options.json:
        document = {"schema": 1, "modules": [row.to_dict() for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    is_good = not has_broken and not any(row.survivors or row.gone for row in rows)
    return 0 if is_good and ratio >= MIN_KILLED_RATIO else 1


def _try(module: str, targets: Targets, listed: Listed, options: argparse.Namespace) -> Row:
    def choose(mutations: Sequence[Mutation]) -> Sequence[Mutation]:
        if options.function:
            return [one for one in mutations if one.function == options.function]
        if options.sample is None or options.sample >= len(mutations):
            return mutations
        chosen = random.Random(options.seed).sample(mutations, options.sample)
        return sorted(chosen, key=lambda mutation: mutation.index)

    started = time.monotonic()
    trials = try_module(
        module,
        targets,
        num_workers=options.workers,
        choose=choose,
        is_listed=lambda one: (module, one.function, one.change) in listed,
    )
    is_whole = options.sample is None and options.function is None
    return judge(module, trials, listed, is_whole=is_whole, seconds=time.monotonic() - started)


def _parser(targets: Targets) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--module", action="append", choices=list(targets.modules))
    parser.add_argument("--function", help="only this function's, by its qualified name")
    parser.add_argument("--sample", type=int, help="so many mutations of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the result here too")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
