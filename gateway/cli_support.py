"""What do all commands share: lazy groups, the options that choose a configuration, failures?"""

import errno
import importlib
import os
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import click

from gateway.config import ConfigError, StarshadeConfig, load_config

_Command = TypeVar("_Command", bound=Callable[..., Any])


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ExitCode(IntEnum):
    """Exit status of every `starshade` command."""

    SUCCESS = 0
    CHECK_FAILED = 1
    USAGE = 2
    REJECTED = 10
    UNSUPPORTED = 20
    MALFORMED = 30
    UNAVAILABLE = 40
    INTERNAL = 70


class Failure(click.ClickException):
    """A command cannot go on: one plain sentence, its stable code, and the next step."""

    def __init__(
        self, message: str, *, exit_code: ExitCode, code: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)  # type: ignore[misc] # click reads it from the instance
        self.code = code
        self.next_step = next_step

    def show(self, file: IO[Any] | None = None) -> None:
        say(f"error: {self.message}" + (f" [{self.code}]" if self.code else ""), file=file)
        if self.next_step:
            say(f"next:  {self.next_step}", file=file)


def say(text: str, *, file: IO[Any] | None = None) -> None:
    """Lines on standard error, or in ``file``; a terminal's own controls are never passed on."""
    from attestation.commands.render import plain_lines

    click.echo(plain_lines(text), file=file, err=file is None)


class LazyGroup(click.Group):
    """A group that knows its commands as `module:attribute` and imports the one that is used."""

    def __init__(self, *args: object, lazy: dict[str, tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._lazy = lazy

    def invoke(self, ctx: click.Context) -> object:
        """Errors in words, and without what a file's name or text would do to a terminal."""
        try:
            return super().invoke(ctx)
        except click.UsageError as err:
            from attestation.commands.render import plain

            err.message = plain(err.message)  # type: ignore[misc] # click shows it from here
            raise
        except OSError as err:
            if err.errno not in _NO_ROOM:
                raise
            raise Failure(
                f"cannot write: {err.strerror}",
                exit_code=ExitCode.INTERNAL,
                code="internal",
                next_step="make room where the output goes",
            ) from err

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._lazy]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._lazy:
            return super().get_command(ctx, name)
        place = self._lazy[name][0]
        command = import_by_name(place)
        if not isinstance(command, click.Command):
            raise TypeError(f"{place} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table alone; what starts everything comes first."""
        own = [(n, c.get_short_help_str(70)) for n, c in self.commands.items() if not c.hidden]
        first, *rest = [(name, summary) for name, (_, summary) in self._lazy.items()]
        rows = [first, *own, *rest]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def database_failure(err: Exception) -> Failure:
    """A database that cannot be used. The error's own text is not shown: it may hold the URL."""
    return Failure(
        f"the database cannot be used: {type(err).__name__}",
        exit_code=ExitCode.CHECK_FAILED,
        code=getattr(err, "failure_code", "database_unavailable"),
        next_step=getattr(err, "next_step", None)
        or "check database_url, that the file or server behind it is sound, and the disk",
    )


class _Folder(click.Path):
    """A folder's path; an empty one is a variable that was not set, not the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("want a path", param, ctx)
        return super().convert(value, param, ctx)


def config_options(command: _Command) -> _Command:
    """Adds --config, --state-dir and --cache-dir."""
    command = click.option(
        "--cache-dir",
        type=_Folder(path_type=Path),
        help="Folder of the models.  [default: ~/.cache/starshade, or in $XDG_CACHE_HOME]",
    )(command)
    command = click.option(
        "--state-dir",
        type=_Folder(path_type=Path),
        help="Folder of keys, databases and logs.  [default: ~/.local/state/starshade, or in "
        "$XDG_STATE_HOME]",
    )(command)
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="TOML file with settings.",
    )(command)


def read_config(
    config_file: Path | None,
    flags: Mapping[str, object],
    *,
    default_policy: Literal["production", "development"] = "production",
) -> StarshadeConfig:
    """The process's configuration. Raises: Failure (exit 2) that lists every problem."""
    try:
        return load_config(
            flags=flags,
            environ=environment(),
            file=config_file,
            default_policy=default_policy,
        )
    except ConfigError as err:
        lines = "".join(f"\n  - {problem}" for problem in err.problems)
        raise Failure(
            f"the configuration has {len(err.problems)} problem(s):{lines}",
            exit_code=ExitCode.USAGE,
            code=err.code,
            next_step="docs/configuration.md lists every key",
        ) from err


def import_by_name(place: str) -> Any:
    """The attribute at `module:attribute`: how commands reach packages that import none of ours."""
    module_name, attribute = place.split(":")
    return getattr(importlib.import_module(module_name), attribute)


def environment() -> dict[str, str]:
    """This process's environment, read here and nowhere else."""
    return dict(os.environ)  # noqa: TID251 - the process edge
