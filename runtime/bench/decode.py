"""`starshade bench decode`: how fast do the tokens of one stream come, at a length of context?

The whole engine works: scheduling, sampling and text are in the time, reading the prompt is not.
"""

from pathlib import Path

import click

from runtime.bench.driver import run_jobs
from runtime.bench.engines import EngineChoice, LoadedForBench, load_for_bench, new_engine
from runtime.bench.load import Job, Record
from runtime.bench.machine import load_average
from runtime.bench.options import engine_options, read_text, repeat_option, text_option, tokens_type
from runtime.bench.prompts import Prompts
from runtime.bench.report import Report, Row, rounded, speed_row
from runtime.bench.summary import quantile
from runtime.config import MAX_DRAFT_TOKENS

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
@click.option(
    "--drafts",
    type=click.IntRange(0, MAX_DRAFT_TOKENS),
    default=0,
    help="Speculate with so many drafts a step, beside none.",
)
@click.option("--repetitive", is_flag=True, help="Prompts whose continuation can be looked up.")
@repeat_option(5)
@text_option
def decode(
    choice: EngineChoice,
    contexts: tuple[int, ...],
    tokens: int,
    drafts: int,
    repetitive: bool,
    repeat: int,
    text_file: Path | None,
    as_json: bool,
) -> None:
    """Time the tokens of one stream, after prompts of given lengths."""
    started_load = load_average()
    loaded = load_for_bench(choice)
    prompts = Prompts(
        loaded.tokenizer, seed=_SEED, text=read_text(text_file), repetitive=repetitive
    )
    rows = measure_decode(
        loaded,
        choice,
        prompts,
        contexts=contexts,
        num_tokens=tokens,
        repeat=repeat,
        drafts=(0, drafts) if drafts else (0,),
    )
    settings = {**choice.settings(), "tokens": tokens, "repetitive": repetitive}
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
    drafts: tuple[int, ...] = (0,),
) -> list[Row]:
    """A row for each context and number of drafts, which all take turns; the first round is not
    counted. With and without drafts the same prompts are continued.
    """
    longest = max(contexts) + num_tokens + 1
    loaded.require_context(longest)
    runner = loaded.runner_for(longest)
    cases = [(context, number) for context in contexts for number in drafts]
    records: dict[tuple[int, int], list[Record]] = {case: [] for case in cases}
    for round_number in range(1 + repeat):
        for context in contexts:
            job = Job(prompt_token_ids=prompts.take(context), max_tokens=num_tokens + 1)
            for number in drafts:
                engine = new_engine(
                    loaded,
                    runner,
                    max_batch_tokens=choice.max_batch_tokens,
                    max_draft_tokens=number,
                )
                run = run_jobs(engine, [job], concurrency=1)
                run.require_complete()
                if round_number:
                    records[context, number].append(run.records[0])
    return [
        _row(context, number, found, is_told=len(drafts) > 1)
        for (context, number), found in records.items()
    ]


def _row(context: int, num_drafts: int, records: list[Record], *, is_told: bool) -> Row:
    gaps_s = [gap for record in records for gap in record.gaps_s()]
    return speed_row(
        f"context {context}" + (f", {num_drafts} drafts" if is_told else ""),
        [1 / record.tpot_s for record in records],
        itl_p50_ms=rounded(quantile(gaps_s, 0.5) * 1e3),
        itl_p99_ms=rounded(quantile(gaps_s, 0.99) * 1e3),
        tokens_per_step=rounded(
            sum(record.output_tokens for record in records)
            / sum(len(record.chunk_s) for record in records)
        ),
    )
