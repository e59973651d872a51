"""`starshade bench start`: how long from a new process to the first token, and in what memory?

Each round starts a process that imports the engine, loads the model and answers one prompt. The
model file is in the system's file cache after the first round, which is not counted.
"""

import os
import subprocess
import sys
import time

import click

from runtime.bench.driver import run_jobs
from runtime.bench.engines import EngineChoice, load_for_bench, new_engine
from runtime.bench.load import Job
from runtime.bench.machine import load_average, peak_rss_bytes, pss_bytes
from runtime.bench.options import engine_options, repeat_option
from runtime.bench.report import Cell, NotMeasurable, Report, Row, rounded
from runtime.bench.summary import summarize

_PROMPT = "Hello"
_TIMEOUT_S = 600.0


@click.command()
@engine_options
@repeat_option(5)
@click.option("--once", is_flag=True, hidden=True, help="Answer in this process and say so.")
def start(choice: EngineChoice, repeat: int, once: bool, as_json: bool) -> None:
    """Time new processes up to their first token."""
    if once:
        click.echo(_first_token(choice))
        return
    started_load = load_average()
    rows: list[Row] = []
    seconds: list[float] = []
    told: list[dict[str, float]] = []
    for number in range(1 + repeat):
        elapsed_s, facts = _start_process(choice)
        if number:
            seconds.append(elapsed_s)
            told.append(facts)
    summary = summarize(seconds)
    row: dict[str, Cell] = {
        "name": "start to first token",
        "median_s": rounded(summary.median),
        "p10_s": rounded(summary.p10),
        "p90_s": rounded(summary.p90),
        "n": summary.n,
    }
    for key in told[0]:
        row[key] = rounded(summarize([facts[key] for facts in told]).median)
    rows.append(row)
    Report(
        command="start",
        model={"name": choice.model.stem},
        settings=choice.settings(),
        results=rows,
        started_load=started_load,
    ).show(as_json=as_json)


def _start_process(choice: EngineChoice) -> tuple[float, dict[str, float]]:
    """Seconds to its first line, and what the line says. Raises: NotMeasurable."""
    command = [sys.executable, "-m", "runtime.bench.start", "--once", "--model", str(choice.model)]
    command += ["--threads", str(choice.threads), "--backend", choice.backend]
    command += ["--precision", choice.precision, "--kv-dtype", choice.kv_dtype]
    command += ["--batch-tokens", str(choice.max_batch_tokens)]
    started_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        line = process.stdout.readline() if process.stdout else ""
        elapsed_s = time.perf_counter() - started_s
        try:
            process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise NotMeasurable("the process does not end") from None
    if process.returncode or not line.strip():
        raise NotMeasurable(f"the process ended with {process.returncode}")
    pairs = (pair.split("=") for pair in line.split())
    return elapsed_s, {name: float(value) for name, value in pairs}


def _first_token(choice: EngineChoice) -> str:
    loaded = load_for_bench(choice)
    engine = new_engine(loaded, loaded.runner_for(512))
    token_ids = tuple(loaded.tokenizer.encode(_PROMPT, special=False))
    run_jobs(engine, [Job(prompt_token_ids=token_ids, max_tokens=1)], concurrency=1)
    memory = {"peak_rss_mib": peak_rss_bytes(), "pss_mib": pss_bytes([os.getpid()])}
    facts = {name: value >> 20 for name, value in memory.items() if value is not None}
    return " ".join([f"load_s={loaded.load_s:.3f}", *(f"{k}={v}" for k, v in facts.items())])


if __name__ == "__main__":
    start()
