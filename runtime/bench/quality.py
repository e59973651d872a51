"""`starshade bench quality`: how well does the model predict here, next to plain arithmetic?

Perplexity as llama.cpp's tool has it: the text in windows of equal length without a start token,
the second half of each window scored. Agreement: at every position of a reference's greedy text,
with that text forced as the prefix, is the best token the same? Free-running texts would part at
the first near tie and say little.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp
from pathlib import Path

import click
import numpy as np

from runtime.bench.engines import TORCH, AnyRunner, EngineChoice, load_for_bench
from runtime.bench.machine import load_average
from runtime.bench.options import MAX_TOKENS, engine_options
from runtime.bench.references import Reference, load_references
from runtime.bench.report import Cell, NotMeasurable, Report, Row, rounded
from runtime.plan import Float32Array, StepPlan

_WINDOW = 512
_CHUNK = 128
_BULK_SEQUENCES = 8  # so many at once go together, where the runner has a way for it
_REFERENCES = Path("model", "smollm2-greedy.json")


@click.command()
@engine_options
@click.option(
    "--text",
    "text_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Text whose perplexity is told.",
)
@click.option("--window", type=click.IntRange(4, MAX_TOKENS), default=_WINDOW, show_default=True)
@click.option("--max-windows", type=click.IntRange(min=1), help="Score so many at most.")
@click.option(
    "--references",
    "references_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Greedy texts with margins.  [default: model/smollm2-greedy.json of the vectors]",
)
@click.option(
    "--vectors",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="STARSHADE_VECTORS",
    help="Folder of published vectors.",
)
@click.option(
    "--chunk",
    type=click.IntRange(1, 1 << 14),
    default=_CHUNK,
    show_default=True,
    help="Tokens of one step; 1 goes the way that decoding goes.",
)
@click.option("--all-precisions", is_flag=True, help="Every precision that the engine has.")
def quality(
    choice: EngineChoice,
    text_file: Path | None,
    window: int,
    max_windows: int | None,
    references_file: Path | None,
    vectors: Path | None,
    chunk: int,
    all_precisions: bool,
    as_json: bool,
) -> None:
    """Tell perplexity on a text and agreement with a reference's greedy texts."""
    if references_file is None and vectors is not None and (vectors / _REFERENCES).is_file():
        references_file = vectors / _REFERENCES
    if text_file is None and references_file is None:
        raise click.UsageError("give --text, --references or --vectors")
    started_load = load_average()
    choices = all_choices(choice) if all_precisions else [choice]
    facts: dict[str, Cell] = {}
    results: list[Row] = []
    for each in choices:
        loaded = load_for_bench(each)
        facts = loaded.facts()
        token_ids: list[int] = []
        if text_file is not None:
            token_ids = loaded.tokenizer.encode(text_file.read_text("utf-8"), special=False)
        for in_bulk in (False, True) if each.precision == "int8" else (False,):
            row: dict[str, Cell] = {
                "precision": each.precision,
                "kv_dtype": each.kv_dtype,
                "generated": "in bulk" if in_bulk else "alone",
            }
            if text_file is not None:
                runner = loaded.runner_for(window)
                row |= perplexity_cells(
                    runner, token_ids, window, chunk, max_windows, in_bulk=in_bulk
                )
            if references_file is not None:
                references = load_references(references_file, weights_sha256=loaded.weights_sha256)
                runner = loaded.runner_for(max(len(each.token_ids) for each in references))
                row |= agreement_cells(runner, references, chunk, in_bulk=in_bulk)
            results.append(row)
    Report(
        command="quality",
        model=facts,
        settings={"threads": choice.threads, "window": window, "chunk": chunk},
        results=results,
        started_load=started_load,
    ).show(as_json=as_json)


def all_choices(choice: EngineChoice) -> list[EngineChoice]:
    """Each precision with the KV cache that goes with it, and int8 with int8 KV as well."""
    if choice.backend == TORCH:
        return [choice]
    pairs = (("int8", "bf16"), ("int8", "int8"), ("f32", "f32"))
    return [replace(choice, precision=first, kv_dtype=second) for first, second in pairs]


def perplexity_cells(
    runner: AnyRunner,
    token_ids: Sequence[int],
    window: int,
    chunk: int,
    max_windows: int | None = None,
    *,
    in_bulk: bool = False,
) -> dict[str, Cell]:
    """exp of the mean negative log likelihood of the scored tokens, in float64.

    Raises: NotMeasurable when the text has not one window.
    """
    num_windows = min(len(token_ids) // window, max_windows or len(token_ids))
    if not num_windows:
        raise NotMeasurable(f"the text has {len(token_ids)} tokens, fewer than one window")
    total, num_scored = 0.0, 0
    for start in range(0, num_windows * window, window):
        ids = token_ids[start : start + window]
        parts = logits_of(
            runner, ids, prompt_len=0, first_row=window // 2, chunk=chunk, in_bulk=in_bulk
        )
        for row, logits in parts:
            wanted = np.array(ids[row + 1 : row + 1 + len(logits)], np.intp)
            scored = logits[: len(wanted)]  # what follows the last token is not known
            total -= float(log_likelihoods(scored, wanted).sum())
            num_scored += len(wanted)
    return {
        "perplexity": float(f"{exp(total / num_scored):.6g}"),
        "windows": num_windows,
        "scored_tokens": num_scored,
    }


def log_likelihoods(logits: Float32Array, token_ids: np.ndarray) -> np.ndarray:
    """log softmax at ``token_ids`` (S,) of ``logits`` (S, V), float64."""
    wide = logits.astype(np.float64)
    best = wide.max(axis=1)
    norms = best + np.log(np.exp(wide - best[:, None]).sum(axis=1))
    found: np.ndarray = wide[np.arange(len(wide)), token_ids] - norms
    return found


def agreement_cells(
    runner: AnyRunner, references: Sequence[Reference], chunk: int, *, in_bulk: bool = False
) -> dict[str, Cell]:
    """Positions with the same best token, and the reference's margins where it is another."""
    missed: list[float] = []
    num_positions = 0
    for each in references:
        length = len(each.prompt_ids)
        first = length - 1
        parts = logits_of(
            runner,
            each.token_ids[:-1],
            prompt_len=length,
            first_row=first,
            chunk=chunk,
            in_bulk=in_bulk,
        )
        for row, logits in parts:
            best = logits.argmax(axis=1)
            at = row - first
            for offset, token_id in enumerate(best.tolist()):
                num_positions += 1
                if token_id != each.output_ids[at + offset]:
                    missed.append(each.margins[at + offset])
    missed.sort()
    return {
        "positions": num_positions,
        "agree": num_positions - len(missed),
        "agree_ratio": rounded(1 - len(missed) / num_positions),
        "miss_margin_p50": missed[len(missed) // 2] if missed else None,
        "miss_margin_max": missed[-1] if missed else None,
    }


def logits_of(
    runner: AnyRunner,
    token_ids: Sequence[int],
    *,
    prompt_len: int,
    first_row: int,
    chunk: int,
    in_bulk: bool = False,
) -> Iterator[tuple[int, Float32Array]]:
    """Logits of the rows from ``first_row`` on: first row and (S, V) of each step that has some.

    The sequence takes the runner's blocks from the first on. Its first ``prompt_len`` tokens are
    computed as a prompt, the others as if they had been generated: each alone, or ``in_bulk`` as
    where many sequences are computed at once.
    """
    table = np.arange(-(-len(token_ids) // runner.block_size), dtype=np.int32)
    for start in range(0, len(token_ids), chunk):
        end = min(start + chunk, len(token_ids))
        rows = range(max(first_row, start), end)
        logits = runner.run(
            _plan(token_ids, prompt_len, start, end, rows, table, runner.block_size, in_bulk)
        )
        if len(rows):
            yield rows[0], np.asarray(getattr(logits, "rows", logits), np.float32)


def _plan(
    token_ids: Sequence[int],
    prompt_len: int,
    start: int,
    end: int,
    rows: range,
    table: np.ndarray,
    block_size: int,
    in_bulk: bool,
) -> StepPlan:
    """In bulk as several sequences that go on with each other, in the same blocks."""
    positions = np.arange(start, end, dtype=np.int32)
    used = table[: -(-end // block_size)]
    num_parts = min(_BULK_SEQUENCES, end - start) if in_bulk else 1
    cuts = np.array([(end - start) * part // num_parts for part in range(num_parts + 1)], np.int32)
    return StepPlan(
        token_ids=np.array(token_ids[start:end], dtype=np.int32),
        positions=positions,
        query_starts=cuts,
        context_lens=cuts[1:] + np.int32(start),
        prompt_lens=np.full(num_parts, prompt_len, dtype=np.int32),
        batch_invariant=np.full(num_parts, not in_bulk),
        block_tables=np.tile(used, (num_parts, 1)),
        slot_mapping=positions.astype(np.int64),
        logits_rows=np.array(rows, dtype=np.int32) - np.int32(start),
    )
