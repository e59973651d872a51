"""`starshade keys`: who may call the gateway?"""

import datetime as dt
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli_support import (
    PLAIN_WIDTH,
    ExitCode,
    Failure,
    config_options,
    database_failure,
    read_config,
)
from gateway.files import PRIVATE_UMASK, make_dir

if TYPE_CHECKING:
    from gateway.db.keys import ApiKeyStore

_NS_PER_S = 1_000_000_000


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def keys() -> None:
    """Make, show and revoke API keys."""


@keys.command()
@click.option("--label", default="default", show_default=True, help="What the key is for.")
@click.option(
    "--tenant",
    default="default",
    show_default=True,
    help="Whose cache it shares: 1 to 128 of A-Z a-z 0-9 . _ - :",
)
@config_options
def create(
    label: str,
    tenant: str,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Make a key and print it. Only its hash is kept: it cannot be shown again."""
    from gateway.auth import hash_key

    with _store(config_file, state_dir, cache_dir) as store:
        try:
            key = store.create(label=label, tenant=tenant, now_ns=time.time_ns())
        except ValueError as err:
            raise Failure(str(err), exit_code=ExitCode.USAGE, code="invalid_value") from err
        made = store.find(hash_key(key))
    click.echo(key)
    click.echo("keep it: only its hash is stored, it is not shown again", err=True)
    if made is not None:
        click.echo(f"its id, for `starshade keys revoke`: {made.principal.key_id}", err=True)


@keys.command("list")
@config_options
def list_keys(config_file: Path | None, state_dir: Path | None, cache_dir: Path | None) -> None:
    """Every key, without the key itself."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("id", "label", "tenant", "created", "revoked"):
        table.add_column(title, overflow="fold")
    with _store(config_file, state_dir, cache_dir) as store:
        for key in store.list_keys():
            table.add_row(
                key.id, key.label, key.tenant, _when(key.created_ns), _when(key.revoked_ns)
            )
    # No terminal, no width to fit: a row stays one line for whatever reads it.
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(table)


@keys.command()
@click.argument("key_id", metavar="ID")
@config_options
def revoke(
    key_id: str, config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> None:
    """End the key ID. A running gateway refuses it within seconds."""
    with _store(config_file, state_dir, cache_dir) as store:
        if not store.revoke(key_id, now_ns=time.time_ns()):
            raise Failure(
                f"no live key has the id {key_id!r}",
                exit_code=ExitCode.CHECK_FAILED,
                code="key_not_found",
                next_step="`starshade keys list` shows the ids",
            )
    click.echo(f"{key_id} is revoked")


@contextmanager
def _store(
    config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> Iterator["ApiKeyStore"]:
    """The key table, brought to the current schema. Raises: Failure when it cannot be used."""
    config = read_config(config_file, {"state_dir": state_dir, "cache_dir": cache_dir})
    from sqlalchemy.exc import SQLAlchemyError

    from gateway.db.engine import migrate, open_engine
    from gateway.db.keys import ApiKeyStore

    os.umask(PRIVATE_UMASK)
    try:
        make_dir(config.state_dir)
        engine = open_engine(config.database_url)
        try:
            migrate(engine)
            yield ApiKeyStore(engine)
        finally:
            engine.dispose()
    except (OSError, SQLAlchemyError) as err:
        raise database_failure(err) from err


def _when(time_ns: int | None) -> str:
    if time_ns is None:
        return "-"
    return f"{dt.datetime.fromtimestamp(time_ns / _NS_PER_S, dt.UTC):%Y-%m-%d %H:%M:%SZ}"
