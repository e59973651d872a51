"""`starshade attest collect`: what Evidence does this machine give for a nonce?"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from attestation.collect.errors import TeeUnavailable
from attestation.collect.tee import open_tee
from attestation.commands.common import (
    EXIT_INTERNAL,
    EXIT_UNSUPPORTED,
    code_exit,
    read_bounded,
)
from attestation.commands.render import plain, tell
from attestation.errors import AttestationError
from attestation.evidence import QuotingTee, make_bundle
from attestation.model import Nonce, parse_nonce
from attestation.strict_json import parse_object

MAX_KEYSET_BYTES = 64 * 1024
_KEYSET_DEPTH = 8
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--nonce",
    required=True,
    help="The verifier's nonce: 64 lower-case hex digits; anything else is malformed, exit 30.",
)
@click.option("--keyset", "keyset_path", type=_FILE, help="The keyset to vouch for, in JSON.")
@click.option("--out", type=_FILE, help="Write the Evidence here.  [default: standard output]")
@click.option("--no-gpu", is_flag=True, help="Leave GPUs out.")
@click.pass_context
def collect(
    ctx: click.Context,
    nonce: str,
    keyset_path: Path | None,
    out: Path | None,
    no_gpu: bool,
) -> None:
    """Collect Evidence of this machine that answers the verifier's nonce.

    With --keyset it is a bundle: the quote, the GPUs and the boot event log, bound to the nonce and
    the keyset. Without, it is the CPU's bare quote or report over the nonce and zeros, binary,
    which vouches for no key. Both are for `attest verify --nonce`.

    Exit codes: 0, 2 usage, 20 no supported TEE here, 30 malformed, 70 internal error.
    """
    at = datetime.now(UTC)  # noqa: TID251 - the process edge
    try:
        asked = parse_nonce(nonce)
        tee = open_tee(with_gpus=not no_gpu)
        evidence = _evidence(tee, asked, keyset_path, at)
    except TeeUnavailable as err:
        tell(err)
        click.echo(plain(f"next: {err.next_step}"), err=True)
        ctx.exit(EXIT_UNSUPPORTED)
    except AttestationError as err:
        tell(err)
        ctx.exit(code_exit(err.code))
    except click.ClickException:
        raise
    except Exception as err:
        click.echo(f"internal error: {type(err).__name__}", err=True)
        ctx.exit(EXIT_INTERNAL)
    _write(evidence, out)


def _evidence(tee: QuotingTee, nonce: Nonce, keyset_path: Path | None, at: datetime) -> bytes:
    if keyset_path is None:
        quote, _ = tee.attest(nonce + bytes(32), at=at)
        return quote
    data = read_bounded(keyset_path, MAX_KEYSET_BYTES, option="--keyset")
    keyset = parse_object(data, what="keyset", max_bytes=MAX_KEYSET_BYTES, max_depth=_KEYSET_DEPTH)
    return make_bundle(tee, nonce, keyset, at).to_json()


def _write(evidence: bytes, out: Path | None) -> None:
    if out is None:
        if sys.stdout.isatty() and not evidence.startswith(b"{"):
            raise click.UsageError("this is binary: give --out, or send it to a file")
        click.echo(evidence, nl=False)
        return
    try:
        out.write_bytes(evidence)
    except OSError as err:
        raise click.BadParameter(f"cannot write {out}: {err.strerror}", param_hint="--out") from err
