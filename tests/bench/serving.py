"""How do servers compare under the same streams?  Each is started, asked and ended once a round.

In every round all subjects get the same prompts: the engine alone in this process, the whole
product over HTTPS, and llama.cpp's server where it is installed. Product and engine see chat
messages, the peer the same text as a plain completion, which is some 30 tokens less.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from runtime.bench.engine_target import EngineTarget
from runtime.bench.engines import EngineChoice, LoadedForBench, load_for_bench
from runtime.bench.prompts import Prompts
from runtime.bench.report import Cell, Row, format_table, rounded
from runtime.bench.serving import CASES, Sizes, Target
from runtime.bench.summary import quantile
from runtime.tokenizer import Tokenizer
from tests.bench.llama_cpp import find_program
from tests.bench.servers import ServerKind, llama_server, product, running
from tests.bench.subjects import PeerFailed

KV_TOKENS = 16_384
ENGINE = "starshade, engine alone"


def measure_servers(
    options: argparse.Namespace,
    tokenizer: Tokenizer,
    document: dict[str, Any],
    failures: list[str],
) -> str:
    """Puts ``serve`` and ``servers`` into the document; the tables as text."""
    rows: list[Row] = []
    starts: list[Row] = []
    sizes = Sizes()
    for number in range(options.serve_repeat):
        for place in range(3 if _has_llama(options) else 2):
            prompts = Prompts(tokenizer, seed=1000 + number)  # the same for each place
            try:
                with _subject(place, options, tokenizer, starts) as target:
                    click.echo(f"round {number + 1}: {target.name}", err=True)
                    for case in options.case or CASES:
                        rows += CASES[case]([target], prompts, sizes, 1)
            except (PeerFailed, click.ClickException) as err:
                failures.append(f"serving, place {place}: {err}")
    document["serve"], document["servers"] = merged(rows, "target"), merged(starts, "server")
    return f"{format_table(document['serve'])}\n\n{format_table(document['servers'])}"


def merged(rows: list[Row], key: str) -> list[Row]:
    """One row for each name and ``key``: medians of what the rounds' rows have, and their n."""
    groups: dict[tuple[Cell, Cell], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.get("name"), row[key]), []).append(row)
    found: list[Row] = []
    for group in groups.values():
        merged_row: dict[str, Cell] = {}
        for name, first in group[0].items():
            numbers = [cell for row in group if isinstance(cell := row[name], int | float)]
            same = isinstance(first, str) or not numbers
            merged_row[name] = first if same else rounded(quantile(numbers, 0.5))
        speeds = [cell for row in group if isinstance(cell := row.get("tokens_per_s"), float)]
        if speeds:
            merged_row["p10"] = rounded(quantile(speeds, 0.1))
            merged_row["p90"] = rounded(quantile(speeds, 0.9))
        found.append(merged_row | {"n": len(group)})
    return found


@contextmanager
def _subject(
    place: int, options: argparse.Namespace, tokenizer: Tokenizer, starts: list[Row]
) -> Iterator[Target]:
    if place == 0:
        yield _engine(options)
        return
    log = options.out / "servers.log"
    with ExitStack() as stack:
        kind = _kind(place, options, stack)
        server = stack.enter_context(running(kind, tokenizer, log))
        yield server.target
        starts.append(
            {
                "server": kind.name,
                "start_to_first_answer_s": rounded(server.start_s),
                "peak_pss_mib": server.peak_pss_bytes >> 20,
            }
        )


def _kind(place: int, options: argparse.Namespace, stack: ExitStack) -> ServerKind:
    if place == 1:
        return stack.enter_context(product(options.model, threads=options.threads))
    program = find_program("llama-server", options.llama_bin)
    if program is None:
        raise PeerFailed("llama-server is not there")
    return llama_server(program, options.model, threads=options.threads, streams=32)


def _engine(options: argparse.Namespace) -> EngineTarget:
    choice = EngineChoice(model=options.model, threads=options.threads)
    loaded: LoadedForBench = load_for_bench(choice)
    return EngineTarget(loaded, choice, kv_tokens=KV_TOKENS, as_chat=True, name=ENGINE)


def _has_llama(options: argparse.Namespace) -> bool:
    return find_program("llama-server", options.llama_bin) is not None
