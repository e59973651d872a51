"""`starshade attest measure`: do log, policy and keyset measure to what the Evidence says?"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click
from rich.table import Table
from rich.text import Text

from attestation.binding import keyset_digest
from attestation.commands.common import (
    EXIT_FAILED,
    FILE,
    Policy,
    code_exit,
    read_bounded,
    read_keyset,
    read_opened,
)
from attestation.commands.render import plain_text, print_parts, tell, tell_program
from attestation.errors import AttestationError, UnsupportedEvidence
from attestation.eventlog.compare import Measured, measure, parse_log
from attestation.eventlog.log import MAX_LOG_BYTES
from attestation.keyset import parse_keyset
from attestation.kinds import guess_kind, unpacked
from attestation.model import MAX_BUNDLE_BYTES, EvidenceBundle, parse_bundle
from attestation.policy import AppraisalPolicy
from attestation.registry import bundle_kind
from attestation.tdx.quote import TdReport, parse_quote


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digest:
    """One digest made here, beside the one that the bundle names, None without a bundle."""

    name: str
    measured: str
    named: str | None

    @property
    def is_equal(self) -> bool:
        return self.named is None or self.measured == self.named


@click.command(name="measure", short_help="Replay an event log and compare it with Evidence.")
@click.argument("log", type=click.File("rb"), required=False)
@click.option("--evidence", "evidence_path", type=FILE, help="A TDX quote, or a bundle with one.")
@click.option("--policy", type=Policy(), help="A policy, to compare with the bundle's keyset.")
@click.option("--keyset", "keyset_path", type=FILE, help="A keyset, to compare with the bundle's.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.pass_context
def measure_command(
    ctx: click.Context,
    log: BinaryIO | None,
    evidence_path: Path | None,
    policy: AppraisalPolicy | None,
    keyset_path: Path | None,
    as_json: bool,
) -> None:
    """Replay LOG, a CCEL area or dstack's JSON ('-' for standard input), into its registers.

    With --evidence the registers must be the quote's, every one of them, and the digests of
    --policy and --keyset those that the bundle names.  The Evidence itself is NOT verified here: a
    log explains registers only after `attest verify` has accepted the quote that holds them.

    Exit codes: 0 equal or nothing to compare with, 1 different, 2 usage, 20 unsupported,
    30 malformed.
    """
    if log is None and policy is None and keyset_path is None:
        raise click.UsageError("nothing to measure: give LOG, --policy or --keyset")
    try:
        bundle, report = _evidence(evidence_path)
        if evidence_path is not None and bundle is None and (policy or keyset_path):
            raise click.UsageError("--policy and --keyset compare with a bundle, not a bare quote")
        measured = None
        if log is not None:
            measured = measure(parse_log(read_opened(log, MAX_LOG_BYTES)), report)
        digests = _digests(bundle, policy, keyset_path)
    except AttestationError as err:
        tell(err)
        if as_json:
            tell_program(err.code, str(err), equal=False)
        ctx.exit(code_exit(err.code))
    is_equal = (measured is None or measured.is_equal) and all(d.is_equal for d in digests)
    if as_json:
        click.echo(json.dumps(_document(measured, digests, is_equal=is_equal), indent=2))
    else:
        _show(measured, digests, is_equal=is_equal, is_compared=evidence_path is not None)
    ctx.exit(0 if is_equal else EXIT_FAILED)


def _evidence(path: Path | None) -> tuple[EvidenceBundle | None, TdReport | None]:
    if path is None:
        return None, None
    data = unpacked(read_bounded(path, MAX_BUNDLE_BYTES, option="--evidence"))
    kind, bundle = guess_kind(data), None
    if kind == "bundle":
        bundle = parse_bundle(data)
        kind = "quote" if bundle_kind(bundle.tee).tee == "tdx" else kind
        data = bundle.quote
    body = parse_quote(data).body if kind == "quote" else None
    if not isinstance(body, TdReport):
        raise UnsupportedEvidence("unsupported_tee", "only a TDX quote has registers to replay")
    return bundle, body


def _digests(
    bundle: EvidenceBundle | None, policy: AppraisalPolicy | None, keyset_path: Path | None
) -> list[_Digest]:
    digests = []
    if policy is not None:
        named = None if bundle is None else parse_keyset(bundle.keyset).policy_sha256
        digests.append(_Digest(name="policy", measured=policy.sha256, named=named))
    if keyset_path is not None:
        keyset = read_keyset(keyset_path)
        parse_keyset(keyset)
        named = None if bundle is None else keyset_digest(bundle.keyset).hex()
        digests.append(_Digest(name="keyset", measured=keyset_digest(keyset).hex(), named=named))
    return digests


def _document(
    measured: Measured | None, digests: list[_Digest], *, is_equal: bool
) -> Mapping[str, object]:
    document: dict[str, object] = {"equal": is_equal, "evidence_verified": False}
    if measured is not None:
        document["registers"] = [
            {
                "register": row.register,
                "events": row.num_events,
                "replayed": row.replayed.hex(),
                "quoted": None if row.quoted is None else row.quoted.hex(),
                "equal": row.is_equal,
            }
            for row in measured.registers
        ]
        document["events"] = [
            {
                "register": event.register,
                "type": event.event_type,
                "digest": event.digest.hex(),
                "description": event.description,
                "measured": event.is_measured,
                "problem": event.problem or None,
            }
            for event in measured.events
        ]
    document["digests"] = [
        {"name": d.name, "measured": d.measured, "named": d.named, "equal": d.is_equal}
        for d in digests
    ]
    return document


def _show(
    measured: Measured | None, digests: list[_Digest], *, is_equal: bool, is_compared: bool
) -> None:
    verdict = "EQUAL to what the Evidence says" if is_compared else "compared with nothing"
    if not is_equal:
        verdict = "DIFFERENT from what the Evidence or the log itself says"
    rows = [(d.name, "sha256", d.measured, d.named, d.is_equal) for d in digests]
    if measured is not None:
        rows += [
            (
                row.register,
                f"{row.num_events} event(s)",
                row.replayed.hex(),
                None if row.quoted is None else row.quoted.hex(),
                row.is_equal,
            )
            for row in measured.registers
        ]
    table = Table(box=None, pad_edge=False)
    for column in ("what", "from", "outcome", "measured", "Evidence says"):
        table.add_column(column, overflow="fold")
    for name, origin, digest, named, is_row_equal in rows:
        table.add_row(name, origin, _outcome(named, is_equal=is_row_equal), digest, named or "")
    print_parts(
        Text(f"{verdict}; the Evidence itself is not verified here", style="bold"),
        *(() if measured is None else (_log_table(measured),)),
        table,
    )


def _log_table(measured: Measured) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("register", "event", "digest", "description"):
        table.add_column(column, overflow="fold")
    for event in measured.events:
        what = event.description
        if event.problem:
            what = f"{what}  PROBLEM: {event.problem}"
        register = event.register if event.is_measured else f"({event.register})"
        table.add_row(register, Text(event.event_type), event.digest.hex()[:16], plain_text(what))
    return table


def _outcome(named: str | None, *, is_equal: bool) -> Text:
    if named is None:
        return Text("n/a", style="dim")
    return Text("equal", style="green") if is_equal else Text("DIFFERENT", style="bold red")
