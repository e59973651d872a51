"""Which options do all benchmarks of the engine share, and how do they fail?"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from runtime.bench.engines import (
    KV_DTYPES,
    MAX_BATCH_TOKENS,
    NATIVE,
    PRECISIONS,
    TORCH,
    EngineChoice,
    default_backend,
)
from runtime.bench.report import NotMeasurable
from runtime.errors import RuntimeFault

_Command = TypeVar("_Command", bound=Callable[..., Any])
MAX_REPEAT = 10_000
MAX_TOKENS = 1 << 20

tokens_type = click.IntRange(min=1, max=MAX_TOKENS)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what chooses an engine, as one argument ``choice``, and --json as ``as_json``.

    Errors of the runtime and the system become one sentence and exit status 1.
    """

    @click.option(
        "--model",
        type=click.Path(exists=True, dir_okay=True, path_type=Path),
        required=True,
        help="Model file.",
    )
    @click.option(
        "--threads",
        type=click.IntRange(min=0, max=256),
        default=0,
        help="Threads of the kernels; 0: one for each usable core.  [default: 0]",
    )
    @click.option(
        "--backend",
        type=click.Choice([NATIVE, TORCH]),
        help="Who computes.  [default: native where it is built]",
    )
    @click.option(
        "--precision", type=click.Choice(PRECISIONS), help="Of activations.  [default: int8]"
    )
    @click.option("--kv-dtype", type=click.Choice(KV_DTYPES), help="[default: bf16]")
    @click.option(
        "--batch-tokens",
        type=click.IntRange(min=65, max=MAX_TOKENS),
        default=MAX_BATCH_TOKENS,
        show_default=True,
        help="Tokens of one step, at most.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @functools.wraps(command)
    def with_choice(
        *args: Any,
        model: Path,
        threads: int,
        backend: str | None,
        precision: str | None,
        kv_dtype: str | None,
        batch_tokens: int,
        **options: Any,
    ) -> None:
        choice = EngineChoice(
            model=model,
            threads=threads,
            backend=backend or default_backend(),
            precision=precision or "",
            kv_dtype=kv_dtype or "",
            max_batch_tokens=batch_tokens,
        )
        try:
            command(*args, choice=choice, **options)
        except (RuntimeFault, OSError) as err:
            raise NotMeasurable(f"{type(err).__name__}: {err}") from err

    return with_choice


def repeat_option(default: int) -> Callable[[_Command], _Command]:
    return click.option(
        "--repeat",
        type=click.IntRange(min=1, max=MAX_REPEAT),
        default=default,
        show_default=True,
        help="Measured rounds, after one to warm up.",
    )


def text_option(command: _Command) -> _Command:
    """Adds --text, a file whose text the prompts are cut from."""
    return click.option(
        "--text",
        "text_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Cut prompts from this file instead of made-up sentences.",
    )(command)


def read_text(text_file: Path | None) -> str | None:
    return None if text_file is None else text_file.read_text("utf-8", errors="replace")
