"""``python -m tests.soak``: does the engine survive 100,000 requests as it was?

Exit 1 when it does not; a broken invariant ends the run with its assertion. A tenth of an hour on
two idle cores with the tiny model.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from runtime.bench.engines import EngineChoice, load_for_bench
from tests.soak.driver import Soak, Window
from tests.soak.verdict import problems
from tests.support.tiny_model import CONTROL_TOKENS, write_tiny_gguf


def main(arguments: Sequence[str]) -> int:
    """Prints one line a window and what is wrong, if anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--windows", type=int, default=50)
    parser.add_argument("--seed", type=int, default=20261130)
    options = parser.parse_args(arguments)
    logging.getLogger("runtime").addHandler(logging.NullHandler())  # every fault is one of ours
    windows: list[Window] = []
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_gguf(Path(folder) / "tiny.gguf")
        loaded = load_for_bench(EngineChoice(model=path, threads=1))
        soak = Soak(loaded, seed=options.seed, first_token_id=len(CONTROL_TOKENS))
        click.echo("window  requests  stop  length  abort  error  faults  PSS MiB  probe CPU ms")
        for window in soak.windows(options.requests, num_windows=options.windows):
            windows.append(window)
            click.echo(_line(len(windows), window))
    found = problems(windows)
    for problem in found:
        click.echo(problem)
    num_sent = sum(window.num_requests for window in windows)
    elapsed_s = time.monotonic() - started_s
    click.echo(f"{num_sent} requests, seed {options.seed}, {elapsed_s:.0f} s: ", nl=False)
    click.echo(f"{len(found)} problems" if found else "sound")
    return 1 if found else 0


def _line(number: int, window: Window) -> str:
    ended = "".join(
        f"{window.ended[reason]:>{width}}"
        for reason, width in (("stop", 6), ("length", 8), ("abort", 7), ("error", 7))
    )
    pss_mib = "" if window.pss_bytes is None else f"{window.pss_bytes >> 20}"
    return (
        f"{number:>6}{window.num_requests:>10}{ended}{window.num_faults:>8}{pss_mib:>9}"
        f"{window.probe_cpu_s * 1e3:>14.1f}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
