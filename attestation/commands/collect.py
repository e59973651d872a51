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
    FILE,
    code_exit,
    read_keyset,
)
from attestation.commands.render import plain, tell
from attestation.errors import AttestationError
from attestation.evidence import QuotingTee, make_bundle
from attestation.model import Nonce, parse_nonce


@click.command(short_help="Collect Evidence of this machine for a verifier's nonce.")
@click.option(
    "--nonce",
    required=True,
    help="The verifier's nonce: 64 lower-case hex digits; anything else is malformed, exit 30.",
)
@click.option("--keyset", "keyset_path", type=FILE, help="The keyset to vouch for, in JSON.")
@click.option("--out", type=FILE, help="Write the Evidence here.  [default: standard output]")
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
    return make_bundle(tee, nonce, read_keyset(keyset_path), at).to_json()


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
