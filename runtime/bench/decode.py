"""`starshade bench decode`: how fast do the tokens of one stream come, at a length of context?

The whole engine works: scheduling, sampling and text are in the time, reading the prompt is not.
"""

from pathlib import Path

import click

from runtime.bench.driver import run_jobs
from runtime.bench.engines import EngineChoice, LoadedForBench, load_for_bench, new_engine
from runtime.bench.load import Job
from runtime.bench.machine import load_average
from runtime.bench.options import engine_options, read_text, repeat_option, text_option, tokens_type
from runtime.bench.prompts import Prompts
from runtime.bench.report import Report, Row, rounded, speed_row
from runtime.bench.summary import quantile

_SEED = 1


@click.command()
@engine_options
@click.option(
    "--context",
    "contexts",
    type=tokens_type,
    multiple=True,
    default=(128, 1024),
    show_default=True,
    help="Tokens before the first that is timed; may be given several times.",
)
@click.option("--tokens", type=tokens_type, default=48, show_default=True)
@repeat_option(5)
@text_option
def decode(
    choice: EngineChoice,
    contexts: tuple[int, ...],
    tokens: int,
    repeat: int,
    text_file: Path | None,
    as_json: bool,
) -> None:
    """Time the tokens of one stream, after prompts of given lengths."""
    started_load = load_average()
    loaded = load_for_bench(choice)
    prompts = Prompts(loaded.tokenizer, seed=_SEED, text=read_text(text_file))
    rows = measure_decode(
        loaded, choice, prompts, contexts=contexts, num_tokens=tokens, repeat=repeat
    )
    settings = {**choice.settings(), "tokens": tokens}
    Report(
        command="decode",
        model=loaded.facts(),
        settings=settings,
        results=rows,
        started_load=started_load,
    ).show(as_json=as_json)


def measure_decode(
    loaded: LoadedForBench,
    choice: EngineChoice,
    prompts: Prompts,
    *,
    contexts: tuple[int, ...],
    num_tokens: int,
    repeat: int,
) -> list[Row]:
    """A row for each context; every round takes them in turn, and the first is not counted."""
    longest = max(contexts) + num_tokens + 1
    loaded.require_context(longest)
    runner = loaded.runner_for(longest)
    speeds: dict[int, list[float]] = {context: [] for context in contexts}
    gaps_s: dict[int, list[float]] = {context: [] for context in contexts}
    for number in range(1 + repeat):
        for context in contexts:
            engine = new_engine(loaded, runner, max_batch_tokens=choice.max_batch_tokens)
            job = Job(prompt_token_ids=prompts.take(context), max_tokens=num_tokens + 1)
            run = run_jobs(engine, [job], concurrency=1)
            run.require_complete()
            if number:
                speeds[context].append(1 / run.records[0].tpot_s)
                gaps_s[context] += run.records[0].gaps_s()
    return [
        speed_row(
            f"context {context}",
            speeds[context],
            itl_p50_ms=rounded(quantile(gaps_s[context], 0.5) * 1e3),
            itl_p99_ms=rounded(quantile(gaps_s[context], 0.99) * 1e3),
        )
        for context in contexts
    ]
