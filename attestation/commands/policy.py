"""`starshade attest policy check`: can this policy be used, and what does it ask?"""

import json
from pathlib import Path

import click

from attestation.commands.common import EXIT_FAILED
from attestation.errors import PolicyError
from attestation.policy import SHIPPED, AppraisalPolicy, load_policy


@click.group()
def policy() -> None:
    """Look at appraisal policies."""


@policy.command(short_help="Check a policy and say what it asks.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.pass_context
def check(ctx: click.Context, file: str, as_json: bool) -> None:
    """Check FILE, a TOML file or the name of a shipped policy, and say what it asks.

    Exit codes: 0 it can be used, 1 it cannot, with every problem.
    """
    if file not in SHIPPED and not Path(file).is_file():
        raise click.BadParameter(f"{file}: no such file", param_hint="FILE")
    try:
        found = load_policy(file)
    except PolicyError as err:
        problems = str(err).removeprefix("policy: ").split("; ")
        if as_json:
            click.echo(json.dumps({"valid": False, "problems": problems}, indent=2))
        else:
            for problem in problems:
                click.echo(problem, err=True)
        ctx.exit(EXIT_FAILED)
    document = describe(found)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        _show(found)


def describe(found: AppraisalPolicy) -> dict[str, object]:
    """What a policy asks, JSON-ready."""
    return {
        "valid": True,
        "name": found.name,
        "sha256": found.sha256,
        "anchors": sorted(found.anchor_kinds),
        "cpu": sorted(found.cpu),
        "gpu": found.gpu,
        "nras": found.nras,
        "profiles": sorted(found.profiles),
        "accepted_with_warning": list(found.warned),
        "rules": {section: [rule.name for rule in rules] for section, rules in found.rules.items()},
        "without_reference_values": [
            section for section in found.rules if not found.has_reference_values(section)
        ],
    }


def _show(found: AppraisalPolicy) -> None:
    click.echo(f"{found.name} {found.sha256}")
    click.echo(f"accepts {', '.join(sorted(found.cpu))}")
    click.echo(f"under roots of kind {', '.join(sorted(found.anchor_kinds))}")
    click.echo(f"GPU evidence {found.gpu}, NRAS token {found.nras}")
    click.echo(f"bound by {', '.join(sorted(found.profiles))}")
    click.echo(f"accepts with a warning: {', '.join(found.warned) or 'nothing'}")
    for section, rules in found.rules.items():
        click.echo(f"{section}: {', '.join(rule.name for rule in rules)}")
        if not found.has_reference_values(section):
            click.echo(f"{section}: NO reference values, so any software passes")
