"""How does a verdict read to a person?  Words first, then every check, then what is not covered."""

import io
import json
from collections.abc import Sequence

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from attestation.errors import AttestationError
from attestation.model import AttestationResult, Check

PLAIN_WIDTH = 4096  # columns where no terminal shows them: a row stays one line
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


def plain_lines(text: str) -> str:
    """The same for several lines, where their ends are the program's own."""
    return "\n".join(map(plain, text.split("\n")))


def plain_text(text: str, style: str = "") -> Text:
    """For text that may have come with the Evidence: neither markup nor control of the terminal."""
    return Text(plain(text), style=style)


def tell(err: AttestationError) -> None:
    """Prints its code and message to standard error."""
    click.echo(plain(f"{err.code}: {err}"), err=True)


def tell_program(code: str, reason: str, **members: bool) -> None:
    """One JSON object to standard output, where what was asked for cannot be had."""
    click.echo(json.dumps({**members, "code": code, "reason": reason}, indent=2))


def tell_internal(err: Exception, *, as_json: bool, **members: bool) -> None:
    """A defect of ours: its kind alone, since its text may hold Evidence."""
    said = f"internal error: {type(err).__name__}"
    click.echo(said, err=True)
    if as_json:
        tell_program("internal", said, **members)


def print_parts(*parts: RenderableType) -> None:
    """Prints to standard output; for whatever is no terminal nothing is wrapped or padded."""
    console = Console()
    if console.is_terminal:
        for part in parts:
            console.print(part)
        return
    text = io.StringIO()
    console = Console(file=text, width=PLAIN_WIDTH)
    for part in parts:
        console.print(part)
    click.echo("\n".join(line.rstrip() for line in text.getvalue().split("\n")), nl=False)


def show_verdict(result: AttestationResult) -> None:
    """Prints it to standard output."""
    submodules = (
        f"{name}  {submodule.status}  trusted by {submodule.trust_anchor or 'keys that were given'}"
        for name, submodule in result.submods.items()
    )
    print_parts(
        plain_text(_verdict(result), "bold"),
        check_table(result.checks),
        *map(plain_text, submodules),
        *(plain_text(f"not covered  {gap}", "dim") for gap in result.not_covered),
        Text(
            f"policy {result.policy_name} {result.policy_sha256[:16]}  "
            f"anchor {result.trust_anchor or 'none'}  verdict {result.verdict_id}"
        ),
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
