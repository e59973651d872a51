"""`starshade bench prefill`: how fast is a prompt read?  Its tokens over the time to its answer.

Requests of one output token, one after the other, no prefix known: the TTFT of an idle engine.
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

_SEED = 2


@click.command()
@engine_options
@click.option(
    "--context",
    "lengths",
    type=tokens_type,
    multiple=True,
    default=(512, 128, 2048),
    show_default=True,
    help="Tokens of the prompt; may be given several times.",
)
@repeat_option(5)
@text_option
def prefill(
    choice: EngineChoice,
    lengths: tuple[int, ...],
    repeat: int,
    text_file: Path | None,
    as_json: bool,
) -> None:
    """Time prompts of given lengths, up to their first output token."""
    started_load = load_average()
    loaded = load_for_bench(choice)
    prompts = Prompts(loaded.tokenizer, seed=_SEED, text=read_text(text_file))
    Report(
        command="prefill",
        model=loaded.facts(),
        settings=choice.settings(),
        results=measure_prefill(loaded, choice, prompts, lengths=lengths, repeat=repeat),
        started_load=started_load,
    ).show(as_json=as_json)


def measure_prefill(
    loaded: LoadedForBench,
    choice: EngineChoice,
    prompts: Prompts,
    *,
    lengths: tuple[int, ...],
    repeat: int,
) -> list[Row]:
    """A row for each length; every round takes them in turn, and the first is not counted."""
    loaded.require_context(max(lengths) + 1)
    runner = loaded.runner_for(max(lengths) + 1)
    ttft_s: dict[int, list[float]] = {length: [] for length in lengths}
    for number in range(1 + repeat):
        for length in lengths:
            engine = new_engine(loaded, runner, max_batch_tokens=choice.max_batch_tokens)
            job = Job(prompt_token_ids=prompts.take(length), max_tokens=1)
            run = run_jobs(engine, [job], concurrency=1)
            run.require_complete()
            if number:
                ttft_s[length].append(run.records[0].ttft_s)
    return [
        speed_row(
            f"prompt {length}",
            [length / seconds for seconds in ttft_s[length]],
            ttft_p50_ms=rounded(quantile(ttft_s[length], 0.5) * 1e3),
        )
        for length in lengths
    ]
