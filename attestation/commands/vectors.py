"""`starshade attest vectors`: do all the published cases of a folder hold?"""

import json
from collections import Counter
from pathlib import Path

import click

from attestation.commands.common import EXIT_FAILED
from attestation.commands.render import plain
from attestation.vectors import NotVectors, run_vectors


@click.command(short_help="Run every case of FOLDER, each at its own time.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print every case's outcome as JSON.")
@click.pass_context
def vectors(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """Run every case of FOLDER, or of the folders in it, each at its own time.

    Prints the cases that do not hold and how many do.  Exit codes: 0 all hold, 1 one does not,
    2 no cases there, or such as do not follow the schema.
    """
    try:
        results = list(run_vectors(folder))
        if not results:
            raise NotVectors(f"{folder}: no case in it")
    except NotVectors as err:
        raise click.BadParameter(str(err), param_hint="FOLDER") from err
    failed = [result for result in results if result.problem is not None]
    if as_json:
        document = {
            "passed": len(results) - len(failed),
            "failed": len(failed),
            "cases": [
                {
                    "folder": result.folder,
                    "id": result.case_id,
                    "verdict": result.outcome.verdict,
                    "code": result.outcome.code,
                    "problem": result.problem,
                }
                for result in results
            ],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        for result in failed:
            click.echo(plain(f"FAIL {result.folder}/{result.case_id}: {result.problem}"))
        for name, count in Counter(result.folder for result in results).items():
            click.echo(plain(f"{name}: {count} cases"))
        click.echo(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    ctx.exit(EXIT_FAILED if failed else 0)
