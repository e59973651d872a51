"""`starshade keys`: who may call the gateway?"""

import dataclasses
import datetime as dt
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli_support import (
    ExitCode,
    Failure,
    config_options,
    database_failure,
    read_config,
)
from gateway.files import PRIVATE_UMASK, make_dir

if TYPE_CHECKING:
    from gateway.db.keys import ApiKeyStore
    from gateway.db.tenants import TenantStore

SCOPES = ("admin", "chat", "embeddings", "metrics")  # of gateway.auth, not imported for `--help`
_NS_PER_S = 1_000_000_000
_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_DURATION_D = 36_500  # times are nanoseconds in 64 bits, and end in the year 2262


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def keys() -> None:
    """Make, show, rotate and revoke API keys, and limit their tenants."""


def duration_ns(text: str) -> int:
    """`90d`, `12h`, `30m` or `45s`. Raises: click.BadParameter."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter("want a number and s, m, h or d, such as 90d")
    duration_s = int(found[1]) * _UNITS_S[found[2]]
    if duration_s > _MAX_DURATION_D * _UNITS_S["d"]:
        raise click.BadParameter(f"want at most {_MAX_DURATION_D}d")
    return duration_s * _NS_PER_S


_PRIORITIES = click.IntRange(-2, 2)
_LIMIT = click.IntRange(0, 1_000_000_000)


@keys.command(
    epilog="\b\nExample:\n  starshade keys create --tenant acme --label ci --expires-in 90d"
)
@click.option("--label", default="default", show_default=True, help="What the key is for.")
@click.option(
    "--tenant",
    default="default",
    show_default=True,
    help="Whose cache and limits it shares: 1 to 128 of A-Z a-z 0-9 . _ - :",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it may be used for; again for more. Default: chat and embeddings.",
)
@click.option(
    "--expires-in",
    metavar="TIME",
    type=duration_ns,
    help="When it ends: 90d, 12h, 30m. Default: never.",
)
@click.option(
    "--priority",
    type=_PRIORITIES,
    default=0,
    show_default=True,
    help="In the engine's queue, -2 to 2; higher goes first.",
)
@config_options
def create(
    label: str,
    tenant: str,
    scopes: tuple[str, ...],
    expires_in: int | None,
    priority: int,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Make a key and print it. Only its hash is kept: it cannot be shown again."""
    from gateway.auth import DEFAULT_SCOPES, Scope

    now_ns = time.time_ns()
    with _database(config_file, state_dir, cache_dir) as (store, _):
        try:
            key = store.create(
                label=label,
                tenant=tenant,
                now_ns=now_ns,
                scopes=map(Scope, scopes) if scopes else DEFAULT_SCOPES,
                priority=priority,
                expires_ns=None if expires_in is None else now_ns + expires_in,
            )
        except ValueError as err:
            raise Failure(str(err), exit_code=ExitCode.USAGE, code="invalid_value") from err
        _show_once(store, key)


@keys.command("list")
@config_options
def list_keys(config_file: Path | None, state_dir: Path | None, cache_dir: Path | None) -> None:
    """Every key, without the key itself."""
    rows = []
    with _database(config_file, state_dir, cache_dir) as (store, _):
        for key in store.list_keys():
            scopes = ",".join(sorted(key.scopes))
            times = (key.created_ns, key.expires_ns, key.revoked_ns)
            rows.append(
                (key.id, key.label, key.tenant, scopes, str(key.priority), *map(_when, times))
            )
    titles = ("id", "label", "tenant", "scopes", "priority", "created", "expires", "revoked")
    _print_table(titles, rows)
    if not rows:
        click.echo("there is no key yet", err=True)
        click.echo("next:  `starshade keys create`; `starshade up` makes one itself", err=True)


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option(
    "--grace",
    metavar="TIME",
    type=duration_ns,
    default="1h",
    show_default=True,
    help="How long the old key works beside the new one; 0s ends it now.",
)
@config_options
def rotate(
    key_id: str,
    grace: int,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Make a key that takes the place of the key ID, and print it."""
    from gateway.db.keys import KeyNotFound

    with _database(config_file, state_dir, cache_dir) as (store, _):
        try:
            key = store.rotate(key_id, now_ns=time.time_ns(), grace_ns=grace)
        except KeyNotFound as err:
            raise _not_found(key_id) from err
        _show_once(store, key)
        ends_ns = next(old.expires_ns for old in store.list_keys() if old.id == key_id)
    click.echo(f"the old key, {key_id}, works until {_when(ends_ns)}", err=True)


@keys.command()
@click.argument("key_id", metavar="ID")
@config_options
def revoke(
    key_id: str, config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> None:
    """End the key ID. A running gateway refuses it within seconds."""
    with _database(config_file, state_dir, cache_dir) as (store, _):
        if not store.revoke(key_id, now_ns=time.time_ns()):
            raise _not_found(key_id)
    click.echo(f"{key_id} is revoked")


@keys.command()
@click.argument("tenant", required=False)
@click.option("--requests-per-minute", type=_LIMIT, help="0: no limit.")
@click.option("--tokens-per-minute", type=_LIMIT, help="Of prompts and answers; 0: no limit.")
@click.option("--open-requests", type=_LIMIT, help="At one time; 0: no limit of its own.")
@click.option("--reset", is_flag=True, help="Back to the gateway's defaults.")
@config_options
def limits(
    tenant: str | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    open_requests: int | None,
    reset: bool,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Show what tenants may use, or change it for TENANT. A gateway follows within seconds."""
    from gateway.auth import TenantLimits, is_tenant_name

    given = (requests_per_minute, tokens_per_minute, open_requests)
    is_change = reset or any(limit is not None for limit in given)
    if is_change and tenant is None:
        raise Failure("name the tenant", exit_code=ExitCode.USAGE, code="invalid_value")
    if tenant is not None and not is_tenant_name(tenant):
        raise Failure(
            "no tenant can have this name", exit_code=ExitCode.USAGE, code="invalid_value"
        )
    with _database(config_file, state_dir, cache_dir) as (_, tenants):
        if tenant is not None and is_change:
            kept = TenantLimits() if reset else tenants.limits(tenant)
            changed = dataclasses.replace(
                kept,
                **{
                    field.name: limit
                    for field, limit in zip(dataclasses.fields(kept), given, strict=True)
                    if limit is not None
                },
            )
            tenants.set_limits(tenant, changed, now_ns=time.time_ns())
        shown = tenants.all_limits() if tenant is None else {tenant: tenants.limits(tenant)}
    rows = [(name, *map(_limit, dataclasses.astuple(each))) for name, each in shown.items()]
    _print_table(("tenant", "requests/min", "tokens/min", "open requests"), rows)


def _show_once(store: "ApiKeyStore", key: str) -> None:
    from gateway.auth import hash_key

    made = store.find(hash_key(key))
    click.echo(key)
    click.echo("keep it: only its hash is stored, it is not shown again", err=True)
    if made is not None:
        click.echo(f"its id, for `starshade keys revoke`: {made.principal.key_id}", err=True)


def _not_found(key_id: str) -> Failure:
    return Failure(
        f"no live key has the id {key_id!r}",
        exit_code=ExitCode.CHECK_FAILED,
        code="key_not_found",
        next_step="`starshade keys list` shows the ids",
    )


def _print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Table

    from attestation.commands.render import plain_text, print_parts

    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))  # a row of the database may be damaged
    print_parts(table)


def _limit(limit: int | None) -> str:
    if limit is None:
        return "default"
    return "none" if limit == 0 else str(limit)


@contextmanager
def _database(
    config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> Iterator[tuple["ApiKeyStore", "TenantStore"]]:
    """The tables of keys and tenants, brought to the current schema.

    Raises: Failure when they cannot be used.
    """
    config = read_config(config_file, {"state_dir": state_dir, "cache_dir": cache_dir})
    from sqlalchemy.exc import SQLAlchemyError

    from gateway.db.engine import migrate, open_engine
    from gateway.db.keys import ApiKeyStore
    from gateway.db.tenants import TenantStore

    os.umask(PRIVATE_UMASK)
    try:
        make_dir(config.state_dir)
        engine = open_engine(config.database_url)
        try:
            migrate(engine)
            yield ApiKeyStore(engine), TenantStore(engine)
        finally:
            engine.dispose()
    except (OSError, SQLAlchemyError) as err:
        raise database_failure(err) from err


def _when(time_ns: int | None) -> str:
    if time_ns is None:
        return "-"
    return f"{dt.datetime.fromtimestamp(time_ns / _NS_PER_S, dt.UTC):%Y-%m-%d %H:%M:%SZ}"
