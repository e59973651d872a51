"""`starshade audit`: what happened at this gateway, and has anybody changed the record of it?"""

import json
import re
import sys
from collections.abc import Iterator
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

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from attestation.receipt import AuditAnchor
    from gateway.audit_chain import AuditEvent
    from gateway.config import StarshadeConfig

_HEAD = re.compile(r"([1-9][0-9]{0,15}):([0-9a-f]{64})")
_FILE = click.Path(dir_okay=False, path_type=Path)
MAX_SHOWN = 100_000


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def audit() -> None:
    """Show the audit log, and check that nobody changed it."""


@audit.command(
    short_help="Check that no event was changed, taken out or put in.",
    epilog="\b\nExample:\n  starshade audit verify --receipt receipt.json",
)
@click.option(
    "--receipt",
    "receipt_paths",
    type=_FILE,
    multiple=True,
    help="A receipt that a client kept: the log must still have what it saw. Repeat it.",
)
@click.option(
    "--head", "known_heads", multiple=True, metavar="SEQ:SHA256", help="A head that you noted."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@config_options
def verify(
    receipt_paths: tuple[Path, ...],
    known_heads: tuple[str, ...],
    as_json: bool,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Check the whole log: every event hashes to what it should and follows the one before it.

    That its end is still there shows against heads seen earlier: the one in STATE/audit-head.json,
    those in all stored receipts, and those that are given. Who can write all of these can forge
    all of these: keep receipts, or the head this prints, elsewhere.

    Exit codes: 0 whole, 1 changed, 2 usage.
    """
    from gateway.audit_chain import AuditBroken
    from gateway.audit_check import require_whole

    anchors = [*map(_receipt_anchor, receipt_paths), *map(_parse_head, known_heads)]
    try:
        with _database(config_file, state_dir, cache_dir) as (config, engine):
            found = require_whole(engine, config.paths.audit_head, anchors)
    except AuditBroken as err:
        if as_json:
            document = {"whole": False, "code": err.code, "seq": err.seq, "reason": str(err)}
            click.echo(json.dumps(document, indent=2))
            sys.exit(ExitCode.CHECK_FAILED)
        raise Failure(
            f"the audit log was changed: {err}",
            exit_code=ExitCode.CHECK_FAILED,
            code=err.code,
            next_step="compare with a backup; believe no event from there on",
        ) from err
    head = f"{found.num_events}:{found.head_sha256}"
    if as_json:
        document = {
            "whole": True,
            "events": found.num_events,
            "head": head,
            "receipts": found.num_receipts,
            "head_file": found.has_head_file,
            "given": len(anchors),
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"WHOLE: {found.num_events} events, each follows the one before it")
    kept = "the kept head" if found.has_head_file else "no kept head"
    click.echo(f"checked against {found.num_receipts} receipts, {kept}, {len(anchors)} given")
    click.echo(f"head {head}")


@audit.command()
@click.option("--kind", help="Only events of this kind.")
@click.option(
    "--last",
    type=click.IntRange(1, MAX_SHOWN),
    default=50,
    show_default=True,
    help="How many, counted before --kind.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@config_options
def show(
    kind: str | None,
    last: int,
    as_json: bool,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """The last events, oldest first. Nothing is verified by this."""
    from gateway.audit_chain import AuditBroken, parse_event
    from gateway.db.audit import last_events

    try:
        with _database(config_file, state_dir, cache_dir) as (_, engine):
            stored = last_events(engine, limit=last)
        events = [parse_event(event) for event in stored]
    except AuditBroken as err:
        raise Failure(
            str(err),
            exit_code=ExitCode.CHECK_FAILED,
            code=err.code,
            next_step="`starshade audit verify` says where the log was changed first",
        ) from err
    events = [event for event in events if kind in (None, event.kind)]
    if not events:
        _tell_empty(kind if stored else None, last)
    if as_json:
        for event in events:
            fields = {"seq": event.seq, "at": event.at, "kind": event.kind}
            click.echo(json.dumps({**fields, "fields": dict(event.fields)}))
        return
    _print_table(events)


def _tell_empty(kind: str | None, last: int) -> None:
    """On standard error, so that what reads the list sees an empty one."""
    if kind is None:
        click.echo("the audit log is empty: no gateway ran with this database yet", err=True)
        click.echo("next:  `starshade up` starts one; --state-dir names another folder", err=True)
    else:
        click.echo(f"none of the last {last} events is of the kind {kind!r}", err=True)
        click.echo("next:  a larger --last, or no --kind to see which kinds there are", err=True)


def _print_table(events: "list[AuditEvent]") -> None:
    from rich.table import Table

    from attestation.commands.render import plain_text, print_parts

    table = Table(box=None, pad_edge=False)
    for title in ("seq", "time", "kind", "what"):
        table.add_column(title, overflow="fold")
    for event in events:
        what = "  ".join(f"{name}={value}" for name, value in event.fields.items())
        table.add_row(*map(plain_text, (str(event.seq), event.at, event.kind, what)))
    print_parts(table)


def _receipt_anchor(path: Path) -> "tuple[str, AuditAnchor]":
    """What the receipt saw; its signature is `starshade receipt verify`'s to check."""
    from attestation.errors import MalformedEvidence
    from attestation.receipt import MAX_RECEIPT_BYTES, SignedReceipt

    try:
        with path.open("rb") as file:
            anchor = SignedReceipt.parse(file.read(MAX_RECEIPT_BYTES + 1)).receipt.audit
    except OSError as err:
        raise click.BadParameter(
            f"cannot read {path}: {err.strerror}", param_hint="--receipt"
        ) from err
    except MalformedEvidence as err:
        raise click.BadParameter(f"{path}: {err}", param_hint="--receipt") from err
    if anchor is None:
        raise click.BadParameter(f"{path} saw no audit log", param_hint="--receipt")
    return path.name, anchor


def _parse_head(value: str) -> "tuple[str, AuditAnchor]":
    from attestation.receipt import AuditAnchor

    match = _HEAD.fullmatch(value)
    if match is None:
        raise click.BadParameter("want SEQ:SHA256, as `audit verify` prints", param_hint="--head")
    return "--head", AuditAnchor(seq=int(match[1]), sha256=match[2])


@contextmanager
def _database(
    config_file: Path | None, state_dir: Path | None, cache_dir: Path | None
) -> "Iterator[tuple[StarshadeConfig, Engine]]":
    """The gateway's database as it is. Raises: Failure when it cannot be read."""
    config = read_config(config_file, {"state_dir": state_dir, "cache_dir": cache_dir})
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError

    from gateway.db.engine import open_engine

    url = make_url(config.database_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        raise Failure(
            f"there is no {url.database}",
            exit_code=ExitCode.USAGE,
            code="database_unavailable",
            next_step="name the gateway's folder with --state-dir, or its database_url",
        )
    try:
        engine = open_engine(config.database_url)
        try:
            yield config, engine
        finally:
            engine.dispose()
    except (OSError, SQLAlchemyError) as err:
        raise database_failure(err) from err
