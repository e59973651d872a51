"""`starshade attest fetch`: which endorsements does this Evidence need, from where, until when?"""

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click
from rich.table import Table
from rich.text import Text

from attestation.anchors import load_anchors
from attestation.commands.common import (
    EXIT_INTERNAL,
    EXIT_UNAVAILABLE,
    FILE,
    UtcTime,
    code_exit,
    kind_option,
    read_bounded,
    read_opened,
)
from attestation.commands.fetching import FetchOptions, fetch_options
from attestation.commands.next_steps import after_silence, tell_next
from attestation.commands.render import plain_text, print_parts, tell_internal
from attestation.endorsement_files import (
    MAX_ENDORSEMENT_BYTES,
    EndorsementFiles,
    sort_endorsements,
)
from attestation.errors import AttestationError
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchConfigError
from attestation.kinds import Kind, guess_kind, unpacked
from attestation.model import MAX_BUNDLE_BYTES
from attestation.strict_json import format_time


@click.command(short_help="Fetch and keep what vouches for EVIDENCE.")
@click.argument("evidence", type=click.File("rb"))
@kind_option
@click.option(
    "--collateral",
    "given_paths",
    type=FILE,
    multiple=True,
    help="What is at hand already, as a GPU's chain or a VLEK. Repeat it.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write what was found here: a file when it is one, else a folder. "
    "Each file is one for `attest verify --collateral`, the JWKS for --jwks.",
)
@click.option("--at", type=UtcTime(), help="What is current then.  [default: now]")
@fetch_options
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.pass_context
def fetch(
    ctx: click.Context,
    evidence: BinaryIO,
    kind: Kind | None,
    given_paths: tuple[Path, ...],
    out: Path | None,
    at: datetime | None,
    as_json: bool,
    fetching: FetchOptions,
) -> None:
    """Fetch what vouches for EVIDENCE, '-' for standard input, and keep it in the cache.

    Everything is verified under the pinned roots before it is kept. EVIDENCE itself is not judged:
    that is `attest verify`.

    Exit codes: 0 everything is there, 2 usage, 10 something does not verify, 20 unsupported,
    30 malformed, 40 something is not to be had, 70 internal error.
    """
    from attestation.fetch.complete import Completion, complete  # brings an HTTP client

    moment = at or datetime.now(UTC)  # noqa: TID251 - the process edge
    data = unpacked(read_opened(evidence, MAX_BUNDLE_BYTES))
    given = [
        read_bounded(path, MAX_ENDORSEMENT_BYTES, option="--collateral") for path in given_paths
    ]
    error: AttestationError | None = None
    files, jwks = EndorsementFiles(), None
    try:
        with fetching.endorser(moment) as endorser:
            try:
                files = sort_endorsements(given)
                completion = Completion(
                    evidence=data,
                    files=files,
                    endorser=endorser,
                    anchors=load_anchors(),
                    token_bytes=secrets.token_bytes,
                )
                found = kind or guess_kind(data)
                jwks = complete(found, completion)
            except AttestationError as err:
                error = err
    except FetchConfigError as err:
        raise click.UsageError(str(err)) from err
    except Exception as err:
        tell_internal(err, as_json=as_json, complete=False)
        ctx.exit(EXIT_INTERNAL)
    if out is not None and error is None:
        _write(out, _named(files, jwks))
    problems: list[AttestationError] = [*endorser.failures, *([] if error is None else [error])]
    if as_json:
        click.echo(json.dumps(_document(endorser, problems), indent=2))
    else:
        _show(endorser, problems)
    if error is not None:
        ctx.exit(code_exit(error.code))
    ctx.exit(EXIT_UNAVAILABLE if problems else 0)


def _document(endorser: Endorser, problems: list[AttestationError]) -> dict[str, object]:
    return {
        "complete": not problems,
        "at": format_time(endorser.at),
        "endorsements": [item.to_dict() for item in endorser.obtained],
        "problems": [{"code": err.code, "reason": str(err)} for err in problems],
    }


def _show(endorser: Endorser, problems: list[AttestationError]) -> None:
    said = "INCOMPLETE" if problems else "COMPLETE"
    table = Table(box=None, pad_edge=False)
    for column in ("what", "from", "valid until", ""):
        table.add_column(column, overflow="fold")
    for item in endorser.obtained:
        until = format_time(item.valid_until)
        table.add_row(*map(plain_text, (item.what, item.origin, until, item.note)))
    print_parts(
        Text(f"{said}: {len(endorser.obtained)} endorsements", style="bold"),
        table,
        *(plain_text(f"{err.code}: {err}", "bold red") for err in problems),
    )
    if any(code_exit(err.code) == EXIT_UNAVAILABLE for err in problems):
        tell_next(after_silence("no_collateral"))


def _named(files: EndorsementFiles, jwks: bytes | None) -> Iterator[tuple[str, bytes]]:
    """A name for each file; ``attest verify`` goes by what is in them."""
    if files.tdx is not None:
        yield "collateral.json", json.dumps(files.tdx.to_json_value(), indent=2).encode("utf-8")
    for stem, extension, contents in (
        ("certificate", "der", files.certificates),
        ("chain", "pem", files.chains),
        ("crl", "der", files.crls),
        ("rim", "xml", files.rims),
        ("ocsp", "der", files.ocsp),
    ):
        for index, content in enumerate(contents):
            yield f"{stem}-{index}.{extension}", content
    if jwks is not None:
        yield "jwks.json", jwks


def _write(out: Path, named: Iterator[tuple[str, bytes]]) -> None:
    contents = dict(named)
    try:
        if len(contents) == 1 and not out.is_dir():
            (content,) = contents.values()
            out.write_bytes(content)
            return
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (out / name).write_bytes(content)
    except OSError as err:
        raise click.BadParameter(f"cannot write {out}: {err.strerror}", param_hint="--out") from err
