"""``python -m tests.bench``: the engine and the peers that are installed, in turn, on one file.

Every round runs each subject once, in a fresh process; medians of at least five rounds. Peers are
llama.cpp (``llama-bench`` on PATH or in STARSHADE_LLAMA_BIN) and OpenVINO GenAI (importable in
STARSHADE_OPENVINO_PYTHON). Results go to test-artifacts/bench as JSON and as a Markdown table.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from runtime.bench.machine import describe_machine, describe_versions, find_commit, load_average
from runtime.bench.serving import CASES
from runtime.checkpoint import open_checkpoint
from runtime.tokenizer import Tokenizer
from tests.bench.genai import OpenVino
from tests.bench.llama_cpp import LlamaCpp, find_program, requantized
from tests.bench.ours import Ours
from tests.bench.serving import measure_servers
from tests.bench.subjects import REPOSITORY, PeerFailed, Subject
from tests.bench.table import Samples

SCHEMA_VERSION = 1
MIN_REPEAT = 5
_FOLDER = REPOSITORY / "test-artifacts" / "bench"
_MODEL = Path("~/.cache/starshade/models/SmolLM2-135M-Instruct.Q4_1.gguf").expanduser()


def main(arguments: Sequence[str]) -> int:
    """Prints the tables and writes both files; exit 1 when a subject failed."""
    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with open_checkpoint(options.model) as checkpoint:
        tokenizer = checkpoint.tokenizer()
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "machine": describe_machine(),
        "commit": find_commit(),
        "versions": describe_versions(("numpy", "tokenizers", "torch")),
        "model": options.model.name,
        "threads": options.threads,
        "repeat": options.repeat,
    }
    started_s, started_load, failures = time.monotonic(), load_average(), list[str]()
    parts = options.part or ("single", "serve")
    text = []
    if "single" in parts:
        text.append(_single(options, tokenizer, document, failures))
    if "serve" in parts:
        text.append(measure_servers(options, tokenizer, document, failures))
    document["load_average"] = [round(started_load, 2), round(load_average(), 2)]
    document["elapsed_s"] = round(time.monotonic() - started_s)
    document["failures"] = failures
    (options.out / "bench.json").write_text(json.dumps(document, indent=2) + "\n")
    (options.out / "bench.md").write_text("\n\n".join(text) + "\n")
    for line in (*text, *failures):
        click.echo(line)
    return 1 if failures else 0


def _single(
    options: argparse.Namespace,
    tokenizer: Tokenizer,
    document: dict[str, Any],
    failures: list[str],
) -> str:
    subjects = _subjects(options, tokenizer, failures)
    samples, foreign_cpu = Samples(), dict[str, list[float]]()
    for number in range(options.repeat):
        for subject in tuple(subjects):
            click.echo(f"round {number + 1}: {subject.name}", err=True)
            try:
                speeds, foreign = _quiet_round(subject, options)
            except PeerFailed as err:
                failures.append(f"{subject.name}: {err}")
                subjects.remove(subject)
                continue
            samples.add(subject.name, speeds)
            foreign_cpu.setdefault(subject.name, []).append(round(foreign, 2))
    document["single"] = samples.rows()
    document["subjects"] = {
        subject.name: {"version": subject.version, "foreign_cpu": foreign_cpu[subject.name]}
        for subject in subjects
    }
    return samples.markdown()


def _quiet_round(
    subject: Subject, options: argparse.Namespace
) -> tuple[Mapping[str, float], float]:
    """A round, anew while others use too much of the machine, and how much they used.

    Raises: PeerFailed.
    """
    speeds: Mapping[str, float] = {}
    for number in range(options.tries):
        if number and subject.foreign_cpu <= options.max_foreign:
            break
        subject.foreign_cpu = 0.0
        speeds = subject.single()
    return speeds, subject.foreign_cpu


def _subjects(
    options: argparse.Namespace, tokenizer: Tokenizer, failures: list[str]
) -> list[Subject]:
    """Ours first: the others are put beside it."""
    model, threads = options.model, options.threads
    subjects: list[Subject] = [Ours(model, threads=threads, options=options.ours.split())]
    bench = find_program("llama-bench", options.llama_bin)
    if bench is None:
        failures.append("llama.cpp: no llama-bench on PATH or in STARSHADE_LLAMA_BIN")
    else:
        subjects.append(LlamaCpp(bench, model, threads=threads, kind="as shipped"))
        quantize = find_program("llama-quantize", options.llama_bin)
        for kind in options.requantize:
            if quantize is None:
                failures.append("llama.cpp: no llama-quantize beside llama-bench")
                break
            file = requantized(quantize, model, kind, options.out)
            subjects.append(LlamaCpp(bench, file, threads=threads, kind=kind))
    if options.openvino_python:
        python = Path(options.openvino_python)
        subjects.append(OpenVino(python, model, tokenizer, threads=threads))
    return subjects


def _parser() -> argparse.ArgumentParser:
    environ = os.environ  # noqa: TID251 - this is a process edge
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--model", type=Path, default=_MODEL)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=MIN_REPEAT)
    parser.add_argument("--max-foreign", type=float, default=0.2, help="processors of others")
    parser.add_argument("--tries", type=int, default=3, help="of a round in which they used more")
    parser.add_argument("--serve-repeat", type=int, default=MIN_REPEAT)
    parser.add_argument("--part", action="append", choices=("single", "serve"))
    parser.add_argument("--requantize", action="append", default=[], help="such as Q8_0")
    parser.add_argument("--llama-bin", default=environ.get("STARSHADE_LLAMA_BIN"))
    parser.add_argument("--openvino-python", default=environ.get("STARSHADE_OPENVINO_PYTHON"))
    parser.add_argument("--ours", default="", help="further options of our own commands")
    parser.add_argument("--out", type=Path, default=_FOLDER)
    parser.add_argument("--case", action="append", choices=list(CASES), help="of serving")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
