"""How does a verdict read to a person?  Words first, then every check, then what is not covered."""

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attestation.errors import AttestationError
from attestation.model import AttestationResult, Check

_STYLES = {"pass": "green", "fail": "bold red", "warn": "bold yellow", "not_applicable": "dim"}
_WORDS = {"pass": "pass", "fail": "FAIL", "warn": "WARN", "not_applicable": "n/a"}


def plain(text: str) -> str:
    """``text`` on one line and without any control of the terminal: those are spelled out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def plain_text(text: str, style: str = "") -> Text:
    """For text that may have come with the Evidence: neither markup nor control of the terminal."""
    return Text(plain(text), style=style)


def tell(err: AttestationError) -> None:
    """Prints its code and message to standard error."""
    click.echo(plain(f"{err.code}: {err}"), err=True)


def show_verdict(result: AttestationResult) -> None:
    """Prints it to standard output."""
    console = Console()
    console.print(plain_text(_verdict(result), "bold"))
    console.print(check_table(result.checks))
    for name, submodule in result.submods.items():
        anchor = submodule.trust_anchor or "keys that were given"
        console.print(plain_text(f"{name}  {submodule.status}  trusted by {anchor}"))
    for gap in result.not_covered:
        console.print(plain_text(f"not covered  {gap}", "dim"))
    console.print(
        Text(
            f"policy {result.policy_name} {result.policy_sha256[:16]}  "
            f"anchor {result.trust_anchor or 'none'}  verdict {result.verdict_id}"
        )
    )


def check_table(checks: Sequence[Check]) -> Table:
    """One row each."""
    table = Table(box=None, pad_edge=False)
    for column in ("check", "outcome", "what was found"):
        table.add_column(column, overflow="fold")
    for check in checks:
        outcome = Text(_WORDS[check.outcome], style=_STYLES[check.outcome])
        found = check.reason if check.code is None else f"{check.code}: {check.reason}"
        table.add_row(plain_text(check.name), outcome, plain_text(found))
    return table


def _verdict(result: AttestationResult) -> str:
    reason = next((check.reason for check in result.checks if check.outcome == "fail"), "")
    warning = next((check.reason for check in result.checks if check.outcome == "warn"), "")
    match result.tier:
        case "affirming":
            return "ACCEPTED (affirming): genuine, and every check that was asked for passed"
        case "warning" if result.is_accepted:
            return f"ACCEPTED WITH A WARNING (warning): {warning}"
        case "warning":
            return f"REJECTED (warning): the policy does not allow it: {warning}"
        case "contraindicated":
            return f"REJECTED (contraindicated): {result.code}: {reason}"
        case "none":
            return f"REJECTED (none: nothing to judge): {result.code}: {reason}"
