"""`starshade attest`: is this Evidence good?  Words first, then every check, then an exit code.

This is a process edge: it reads files and, without --at, the clock.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attestation.anchors import load_anchors
from attestation.appraise import MISSING_CODES, appraise, appraise_quote, reject_unread
from attestation.collateral import BundledCollateral, CollateralSource, FileCollateral
from attestation.errors import AttestationError, PolicyError
from attestation.model import (
    MAX_BUNDLE_BYTES,
    AttestationResult,
    EvidenceBundle,
    parse_bundle,
    parse_nonce,
)
from attestation.policy import AppraisalPolicy, load_policy
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.quote import parse_quote

EXIT_ACCEPT = 0
EXIT_REJECT = 10
EXIT_UNSUPPORTED = 20
EXIT_MALFORMED = 30
EXIT_UNAVAILABLE = 40
EXIT_INTERNAL = 70
_MALFORMED_CODES = frozenset({"format", "trailing_bytes", "nonce_length"})
_HEX = re.compile(rb"(?:0x)?([0-9A-Fa-f\s]+)")
_STYLES = {"pass": "green", "fail": "bold red", "warn": "bold yellow", "not_applicable": "dim"}
_WORDS = {"pass": "pass", "fail": "FAIL", "warn": "WARN", "not_applicable": "n/a"}


class _UtcTime(click.ParamType[datetime]):
    """ISO 8601 with a zone."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not an ISO 8601 time", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} names no zone: add Z or an offset", param, ctx)
        return moment.astimezone(UTC)


@click.group()
def attest() -> None:
    """Judge attestation Evidence."""


@attest.command()
@click.argument("evidence", type=click.File("rb"))
@click.option(
    "--collateral",
    "collateral_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Collateral JSON; wins over what a bundle carries.",
)
@click.option(
    "--policy",
    "policy_source",
    default="production",
    show_default=True,
    help="production, development, or a TOML file.",
)
@click.option("--nonce", help="The nonce you asked with: 64 lower-case hex digits.")
@click.option("--at", type=_UtcTime(), help="Judge as of this ISO 8601 time.  [default: now]")
@click.option("--offline", is_flag=True, help="Use only local collateral (never fetches today).")
@click.option("--json", "as_json", is_flag=True, help="Print the AttestationResult as JSON.")
@click.pass_context
def verify(
    ctx: click.Context,
    evidence: BinaryIO,
    collateral_path: Path | None,
    policy_source: str,
    nonce: str | None,
    at: datetime | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Judge EVIDENCE: a bundle (JSON) or a bare quote (binary or hex), '-' for standard input.

    A bundle is judged only against the nonce you chose, so --nonce is required for it: a bundle
    checked against its own nonce could be a recording.  A bare quote is bound to no keys; with
    --nonce its REPORTDATA must be the nonce and 32 zero bytes, without it freshness is not judged
    and the result says so.

    Exit codes: 0 accepted, 2 usage, 10 rejected, 20 unsupported, 30 malformed, 40 collateral not
    available, 70 internal error.
    """
    moment = at or datetime.now(UTC)  # noqa: TID251 - the process edge
    try:
        policy = load_policy(policy_source)
    except PolicyError as err:
        raise click.BadParameter(str(err), param_hint="--policy") from err
    data = evidence.read(MAX_BUNDLE_BYTES + 1)
    is_bundle = data.lstrip()[:1] == b"{"
    if is_bundle and nonce is None:
        raise click.UsageError("a bundle is judged against the nonce you chose: give --nonce")
    try:
        result = _judge(data, is_bundle, collateral_path, policy, nonce, moment)
    except Exception as err:
        click.echo(f"internal error: {type(err).__name__}", err=True)
        ctx.exit(EXIT_INTERNAL)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _show(result)
    ctx.exit(exit_code(result))


def exit_code(result: AttestationResult) -> int:
    """The process exit code that tells scripts what happened."""
    if result.is_accepted:
        return EXIT_ACCEPT
    code = result.code or ""
    if code in _MALFORMED_CODES:
        return EXIT_MALFORMED
    if code.startswith("unsupported_"):
        return EXIT_UNSUPPORTED
    return EXIT_UNAVAILABLE if code in MISSING_CODES else EXIT_REJECT


def _judge(
    data: bytes,
    is_bundle: bool,
    collateral_path: Path | None,
    policy: AppraisalPolicy,
    nonce_hex: str | None,
    at: datetime,
) -> AttestationResult:
    anchors = load_anchors()
    try:
        nonce = None if nonce_hex is None else parse_nonce(nonce_hex)
        bundle = parse_bundle(data) if is_bundle else None
        quote = _quote_bytes(data) if bundle is None else bundle.quote
        parse_quote(quote)  # malformed Evidence is that, whether or not collateral is at hand
        collateral = _source(collateral_path, bundle).find(quote)
    except AttestationError as err:
        return reject_unread(err, data, policy=policy, at=at)
    if bundle is not None and nonce is not None:
        return appraise(
            bundle, nonce=nonce, policy=policy, anchors=anchors, at=at, collateral=collateral
        )
    expected = None if nonce is None else nonce + bytes(32)
    return appraise_quote(
        quote, collateral, policy=policy, anchors=anchors, at=at, expected_report_data=expected
    )


def _source(path: Path | None, bundle: EvidenceBundle | None) -> CollateralSource:
    if path is not None:
        return FileCollateral(path=path)
    carried = None if bundle is None else bundle.collateral
    return BundledCollateral(collateral=carried if isinstance(carried, TdxCollateral) else None)


def _quote_bytes(data: bytes) -> bytes:
    """Hex text decoded, anything else as it is."""
    match = _HEX.fullmatch(data.strip())
    digits = b"" if match is None else b"".join(match[1].split())
    return bytes.fromhex(digits.decode("ascii")) if digits and len(digits) % 2 == 0 else data


def _show(result: AttestationResult) -> None:
    console = Console()
    console.print(Text(_verdict(result), style="bold"))
    table = Table(box=None, pad_edge=False)
    for column in ("check", "outcome", "what was found"):
        table.add_column(column, overflow="fold")
    for check in result.checks:
        outcome = Text(_WORDS[check.outcome], style=_STYLES[check.outcome])
        found = check.reason if check.code is None else f"{check.code}: {check.reason}"
        table.add_row(Text(check.name), outcome, Text(found))
    console.print(table)
    for gap in result.not_covered:
        console.print(Text(f"not covered  {gap}", style="dim"))
    console.print(
        Text(
            f"policy {result.policy_name} {result.policy_sha256[:16]}  "
            f"anchor {result.trust_anchor or 'none'}  verdict {result.verdict_id}"
        )
    )


def _verdict(result: AttestationResult) -> str:
    reason = next((check.reason for check in result.checks if check.outcome == "fail"), "")
    warning = next((check.reason for check in result.checks if check.outcome == "warn"), "")
    match result.tier:
        case "affirming":
            return "ACCEPTED (affirming): genuine, and every check that was asked for passed"
        case "warning":
            return f"ACCEPTED WITH A WARNING (warning): {warning}"
        case "contraindicated":
            return f"REJECTED (contraindicated): {result.code}: {reason}"
        case "none":
            return f"REJECTED (none: nothing to judge): {result.code}: {reason}"
