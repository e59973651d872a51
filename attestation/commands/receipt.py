"""`starshade receipt`: what did a gateway sign about my request, and is it true?"""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

import click
from rich.table import Table
from rich.text import Text

from attestation.commands.asking import EvidenceSource
from attestation.commands.common import (
    EXIT_ACCEPT,
    EXIT_FAILED,
    EXIT_INTERNAL,
    FILE,
    UtcTime,
    code_exit,
    exit_code,
    policy_option,
    read_bounded,
)
from attestation.commands.fetching import FetchOptions, client_certificate_options, fetch_options
from attestation.commands.next_steps import after_refusal, tell_next, tell_no_verdict
from attestation.commands.receipt_judging import SignerEvidence, of_file, of_url, require_complete
from attestation.commands.receipt_source import parse_receipt_url
from attestation.commands.render import (
    check_table,
    plain_text,
    print_parts,
    show_verdict,
    tell,
    tell_internal,
    tell_program,
)
from attestation.errors import AttestationError, EvidenceUnavailable
from attestation.fetch.errors import FetchConfigError
from attestation.model import AttestationResult, Check
from attestation.policy import AppraisalPolicy
from attestation.receipt import SignedReceipt
from attestation.receipt_checks import MISMATCH, check_receipt, failing_code

MAX_BODY_BYTES = 256 * 1024 * 1024  # of a request or response that is compared


@click.group()
def receipt() -> None:
    """Check the signed receipts of requests."""


@receipt.command(
    epilog="\b\nExample:\n"
    "  starshade receipt verify https://127.0.0.1:8443/v1/receipts/ID --ca-file ca.pem"
)
@click.argument("source", metavar="RECEIPT|URL", type=EvidenceSource())
@click.option("--request", "request_path", type=FILE, help="The body that was sent, to compare.")
@click.option("--response", "response_path", type=FILE, help="The body that came back, to compare.")
@click.option("--gateway", help="Ask this gateway for its Evidence.  [default: that of URL]")
@click.option("--node", help="A worker behind it signed the receipt (pass-through).")
@click.option("--evidence", "evidence_path", type=FILE, help="Its Evidence, kept from then.")
@click.option("--nonce", help="The nonce that Evidence answers: 64 lower-case hex digits.")
@policy_option
@click.option("--at", type=UtcTime(), help="Judge Evidence as of this ISO 8601 time.")
@fetch_options
@client_certificate_options
@click.option("--json", "as_json", is_flag=True, help="Print checks and receipt as JSON.")
@click.pass_context
def verify(
    ctx: click.Context,
    source: BinaryIO | str,
    request_path: Path | None,
    response_path: Path | None,
    gateway: str | None,
    node: str | None,
    evidence_path: Path | None,
    nonce: str | None,
    policy: AppraisalPolicy,
    at: datetime | None,
    as_json: bool,
    fetching: FetchOptions,
) -> None:
    """Verify RECEIPT ('-' for standard input), or the one at URL.

    URL is https://host[:port]/v1/receipts/ID. Its gateway is asked for its Evidence, with a fresh
    nonce, and judged under --policy; only then it gets the key in $STARSHADE_API_KEY, over the TLS
    key that it attests. The signature counts only under a key that the Evidence of its signer
    attests: that of the same gateway, unless options name another.

    A receipt outlives its key, which ends with the gateway's process: keep --evidence with it.

    Exit codes: 0 all holds, 1 --request or --response is another body, 2 usage, 10 the signature
    or the Evidence is refused, 20 unsupported, 30 malformed, 40 the gateway or collateral is not
    available, 70 internal error.
    """
    served = parse_receipt_url(source) if isinstance(source, str) else None
    evidence = SignerEvidence(
        url=gateway or (None if served is None else served.gateway),
        node=node,
        path=evidence_path,
        nonce=nonce,
        policy=policy,
        at=at,
    )
    require_complete(evidence, served, fetching)
    request = _body(request_path, "--request")
    response = _body(response_path, "--response")
    signed: SignedReceipt | None
    try:
        if served is None:
            signed, attested = of_file(cast("BinaryIO", source), evidence, fetching)
        else:
            signed, attested = of_url(served, evidence, fetching)
    except AttestationError as err:
        if isinstance(err, EvidenceUnavailable):
            tell_no_verdict(err)
        else:
            tell(err)
        if as_json:
            tell_program(err.code, str(err), accepted=False)
        ctx.exit(code_exit(err.code))
    except FetchConfigError as err:
        raise click.UsageError(str(err)) from err
    except click.ClickException:
        raise
    except Exception as err:
        tell_internal(err, as_json=as_json, accepted=False)
        ctx.exit(EXIT_INTERNAL)
    verdict, keys = attested.verdict, () if attested.keyset is None else attested.keyset.receipt
    checks = (
        () if signed is None else check_receipt(signed, keys, request=request, response=response)
    )
    if as_json:
        click.echo(json.dumps(_document(signed, verdict, checks), indent=2))
    else:
        _show(signed, verdict, checks)
    ctx.exit(_exit_code(verdict, failing_code(checks)))


def _body(path: Path | None, option: str) -> bytes | None:
    if path is None:
        return None
    data = read_bounded(path, MAX_BODY_BYTES, option=option)
    if len(data) > MAX_BODY_BYTES:
        raise click.BadParameter(f"{path} exceeds {MAX_BODY_BYTES} bytes", param_hint=option)
    return data


def _exit_code(verdict: AttestationResult, code: str | None) -> int:
    if not verdict.is_accepted:
        return exit_code(verdict)
    if code is None:
        return EXIT_ACCEPT
    return EXIT_FAILED if code == MISMATCH else code_exit(code)


def _document(
    signed: SignedReceipt | None, verdict: AttestationResult, checks: Sequence[Check]
) -> dict[str, object]:
    code = failing_code(checks) if verdict.is_accepted else verdict.code
    return {
        "accepted": verdict.is_accepted and code is None,
        "code": code,
        "checks": [
            {"name": c.name, "outcome": c.outcome, "code": c.code, "reason": c.reason}
            for c in checks
        ],
        "receipt": None if signed is None else signed.receipt.to_json_value(),
        "verdict": verdict.to_dict(),
    }


def _show(
    signed: SignedReceipt | None, verdict: AttestationResult, checks: Sequence[Check]
) -> None:
    code = failing_code(checks)
    if signed is None or not verdict.is_accepted:
        print_parts(Text("NOT VERIFIED: the gateway's Evidence is refused", style="bold red"))
        show_verdict(verdict)
        tell_next(after_refusal(verdict.code, policy=verdict.policy_name))
        return
    simulated = "; THE TEE IS SIMULATED: this proves nothing" if verdict.simulated else ""
    words = f"VERIFIED{simulated}" if code is None else f"NOT VERIFIED: {code}"
    members = Table(box=None, pad_edge=False)
    for column in ("the receipt says", ""):
        members.add_column(column, overflow="fold")
    for name, value in sorted(signed.receipt.to_json_value().items()):
        shown = value if isinstance(value, str) else json.dumps(value)
        members.add_row(plain_text(name), plain_text(shown))
    print_parts(
        Text(words, style="bold" if code is None else "bold red"),
        check_table(checks),
        members,
        plain_text(f"policy {verdict.policy_name}  anchor {verdict.trust_anchor or 'none'}"),
    )
