"""`starshade attest show`: what does this Evidence say?  Every field, and nothing is verified."""

import json
from typing import BinaryIO

import click
from rich.table import Table
from rich.text import Text

from attestation.commands.common import code_exit, kind_option, read_opened
from attestation.commands.render import plain_text, print_parts, tell, tell_program
from attestation.errors import AttestationError
from attestation.fields import Field
from attestation.kinds import Kind, guess_kind, unpacked
from attestation.model import MAX_BUNDLE_BYTES
from attestation.showing import show_fields


@click.command(short_help="Show every field of EVIDENCE; nothing is verified.")
@click.argument("evidence", type=click.File("rb"))
@kind_option
@click.option("--json", "as_json", is_flag=True, help="Print the fields as JSON.")
@click.pass_context
def show(ctx: click.Context, evidence: BinaryIO, kind: Kind | None, as_json: bool) -> None:
    """Show every field of EVIDENCE; of binary Evidence every byte is in exactly one.

    NOTHING is verified.  Exit codes: 0, 20 unsupported, 30 malformed.
    """
    data = unpacked(read_opened(evidence, MAX_BUNDLE_BYTES))
    try:
        found = kind or guess_kind(data)
        fields = show_fields(found, data)
    except AttestationError as err:
        tell(err)
        if as_json:
            tell_program(err.code, str(err), verified=False)
        ctx.exit(code_exit(err.code))
    if as_json:
        document = {
            "kind": found,
            "verified": False,
            "fields": [
                {
                    "name": field.name,
                    "offset": field.offset if field.size_bytes else None,
                    "size_bytes": field.size_bytes or None,
                    "value": field.value,
                }
                for field in fields
            ],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(found, fields)


def _print(kind: Kind, fields: list[Field]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("offset", "bytes", "field", "value"):
        table.add_column(column, overflow="fold")
    for field in fields:
        where = (f"{field.offset:#06x}", str(field.size_bytes)) if field.size_bytes else ("", "")
        table.add_row(*where, plain_text(field.name), plain_text(field.value))
    print_parts(Text(f"{kind}: NOTHING of this is verified", style="bold"), table)
