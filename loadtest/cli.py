"""`starshade load`: how does the gateway hold up under a described load?"""

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from attestation.errors import PolicyError
from loadtest.errors import (
    CredentialMissing,
    DatabaseUnusable,
    GatewayNotAttested,
    GatewayUnreachable,
    GeneratorFailed,
    LoadTestError,
)
from loadtest.load_profile import Profile, load_profile, profile_names
from loadtest.records import RequestRecord
from loadtest.runner import FinishedRun, config_json, run_profile
from loadtest.summary import (
    Quantiles,
    RunSummary,
    has_enough_samples,
    judged_lateness_s,
    max_lateness_s,
    summarize,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from telemetry.db.runs import RunRequest

EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_REJECTED = 10
EXIT_UNAVAILABLE = 40
EXIT_INTERNAL = 70
DEFAULT_URL = "https://127.0.0.1:8443/v1"
DEFAULT_MODEL = "smollm2-135m"


@click.group()
def load() -> None:
    """Drive a gateway with a described load and store what it answered."""


@load.command("profiles")
def list_profiles() -> None:
    """List the shipped load profiles."""
    table = Table("profile", "requests/s", "arrivals", "seconds", "what it is for")
    for name in profile_names():
        profile = load_profile(name)
        seconds = profile.phases.warmup_s + profile.phases.measure_s
        rate, kind = f"{profile.arrivals.rate_per_s:g}", profile.arrivals.kind
        table.add_row(name, rate, kind, f"{seconds:g}", profile.description)
    Console().print(table)


@load.command(
    "run",
    short_help="Run PROFILE and store every request.",
    epilog="\b\nExample:\n  starshade load run smoke --label before",
)
@click.argument("profile_name", metavar="PROFILE")
@click.option("--base-url", default=DEFAULT_URL, show_default=True, help="The gateway's API.")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="Model to ask for.")
@click.option("--label", default=None, help="Name of the run; the profile's by default.")
@click.option(
    "--policy",
    "policy_name",
    default="development",
    show_default=True,
    help="Appraisal policy for the gateway's evidence: production, development or a TOML file.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="State folder with ca.pem, dev-api-key and telemetry.db.  [default: the user's]",
)
@click.option("--database-url", default=None, help="Where to store the run.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def run(
    profile_name: str,
    base_url: str,
    model: str,
    label: str | None,
    policy_name: str,
    state_dir: Path | None,
    database_url: str | None,
    as_json: bool,
) -> None:
    """Run PROFILE (a shipped name or a TOML file) and store every request.

    The gateway must attest its TLS key first. The API key comes from STARSHADE_API_KEY, else from
    the state folder. Exit status: 0 valid run, 1 invalid run or no place for it, 2 wrong profile,
    URL, key or model, 10 gateway refused, 40 unreachable, 70 generator failed.
    """
    try:
        profile = load_profile(profile_name)
        summary = _run(profile, base_url, model, label, policy_name, state_dir, database_url)
    except (LoadTestError, PolicyError) as err:
        click.echo(f"error: {err} [{err.code}]", err=True)
        click.echo(f"next:  {_next_step(err)}", err=True)
        sys.exit(_exit_code(err))
    if as_json:
        click.echo(json.dumps(summary.to_dict()))
    else:
        _print_summary(summary, Console())
    sys.exit(0 if summary.is_valid else EXIT_CHECK_FAILED)


def _run(
    profile: Profile,
    base_url: str,
    model: str,
    label: str | None,
    policy_name: str,
    state_dir: Path | None,
    database_url: str | None,
) -> RunSummary:
    from attestation.fetch.cache import default_folder
    from attestation.policy import load_policy
    from loadtest.pin import attest_gateway, require_model
    from telemetry.db.url import sqlite_url

    environment = os.environ  # noqa: TID251 - the command's process edge
    state = state_dir or _default_state_dir()
    api_key = _api_key(state)
    notes = Console(stderr=True)
    attested = attest_gateway(
        base_url,
        ca_path=state / "ca.pem",
        policy=load_policy(policy_name),
        utc_now=lambda: datetime.now(UTC),  # noqa: TID251 - the command's clock
        collateral_folder=default_folder(environment.get("XDG_CACHE_HOME")),
        client_certificate=_client_certificate(state),
    )
    tee = "SIMULATED TEE" if attested.result.simulated else "verified TEE"
    notes.print(f"gateway attested: {attested.result.tier} ({tee})", highlight=False)
    require_model(attested.target, model=model, api_key=api_key)
    url = database_url or sqlite_url(state / "telemetry.db")
    with _database(url):  # before the run, not after it
        pass
    with _progress(notes) as progress:
        task = progress.add_task(profile.name, total=None)
        finished = run_profile(
            profile,
            attested.target,
            model=model,
            api_key=api_key,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    summary = summarize(finished.records, profile)
    config = config_json(profile, attested.target, model=model)
    _store(finished, summary, label or profile.name, config, url)
    return summary


def _store(
    finished: FinishedRun,
    summary: RunSummary,
    label: str,
    config: str,
    url: str,
) -> None:
    from telemetry.db.runs import RunRecord, write_run

    record = RunRecord(
        id=secrets.token_hex(8),
        label=label,
        profile=summary.profile,
        config_json=config,
        started_ns=min((item.intended_ns for item in finished.records), default=0),
        ended_ns=max((item.ended_ns or 0 for item in finished.records), default=0),
        valid=summary.is_valid,
        invalid_reasons=summary.invalid_reasons,
    )
    requests = [_run_request(item) for item in finished.records]
    with _database(url) as engine:
        write_run(engine, record, requests)


@contextmanager
def _database(url: str) -> "Iterator[Engine]":
    """Ready to be written. Raises: DatabaseUnusable, which does not show the URL."""
    from sqlalchemy.exc import SQLAlchemyError

    from telemetry.db.engine import migrate, open_engine

    try:
        engine = open_engine(url)
        try:
            migrate(engine)
            yield engine
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError, ImportError, ValueError) as err:
        raise DatabaseUnusable(f"the run cannot be stored: {type(err).__name__}") from err


def _run_request(record: RequestRecord) -> "RunRequest":
    from telemetry.db.runs import RunRequest
    from telemetry.histogram import ExpHistogram
    from telemetry.metrics import itl_gaps_ns

    gaps_ns = itl_gaps_ns(record.timeline())
    return RunRequest(
        seq=record.seq,
        trace_id=bytes.fromhex(record.trace_id) if record.trace_id else None,
        phase="warmup" if record.is_warmup else "measure",
        intended_ns=record.intended_ns,
        dispatched_ns=record.dispatched_ns,
        first_byte_ns=record.first_byte_ns,
        first_token_ns=record.first_token_ns,
        last_token_ns=record.last_token_ns,
        ended_ns=record.ended_ns,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        cached_tokens=record.cached_tokens,
        chunks=len(record.text_chunks_ns),
        max_gap_ns=max(gaps_ns, default=None),
        gap_sketch=ExpHistogram.from_ns(gaps_ns),
        status=record.status,
        error_type=record.error_code,
    )


def _print_summary(summary: RunSummary, console: Console) -> None:
    table = Table("seconds", "n", "p50", "p90", "p99", title=f"run: {summary.profile}")
    rows: tuple[tuple[str, Quantiles], ...] = (
        ("TTFT, from intended start", summary.ttft_s),
        ("TTFT, from dispatch", summary.ttft_from_dispatch_s),
        ("ITL, each gap", summary.itl_s),
        ("TPOT", summary.tpot_s),
        ("E2E, from intended start", summary.e2e_s),
        ("generator lateness", summary.lateness_s),
    )
    for name, value in rows:
        cells = [_cell(value.p50, 0.5, value), _cell(value.p90, 0.9, value)]
        table.add_row(name, str(value.count), *cells, _cell(value.p99, 0.99, value))
    console.print(table)
    console.print("~ few samples beyond this quantile: read it as the largest values seen")
    hit = f"{summary.cached_tokens} of {summary.prompt_tokens} prompt tokens from the prefix cache"
    console.print(
        f"{summary.requests} requests, {summary.failed} failed · "
        f"{summary.achieved_rate_per_s:.2f} requests/s, goodput {summary.goodput_per_s:.2f}/s · "
        f"{summary.output_tokens_per_s:.1f} output tokens/s · {hit}",
        highlight=False,
    )
    for code, count in summary.errors.items():
        console.print(f"  {count} x {code}", highlight=False)
    late_s = judged_lateness_s(summary.lateness_s)
    if late_s is not None:
        which = "p99" if late_s == summary.lateness_s.p99 else "p90"
        bound_s = max_lateness_s(summary.ttft_s)
        console.print(
            f"generator lateness: {which} {late_s * 1e3:.1f} ms, bound {bound_s * 1e3:.1f} ms",
            highlight=False,
        )
    verdict = "valid" if summary.is_valid else f"INVALID: {', '.join(summary.invalid_reasons)}"
    console.print(f"run stored; {verdict}", highlight=False)


def _cell(value: float | None, q: float, of: Quantiles) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" + ("" if has_enough_samples(of.count, q) else " ~")


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def _default_state_dir() -> Path:
    environment = os.environ  # noqa: TID251 - the command's process edge
    if own := environment.get("STARSHADE_STATE_DIR"):
        return Path(own)
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "starshade"


def _client_certificate(state: Path) -> tuple[Path, Path] | None:
    """What this machine's gateway keeps for its tools when it wants to see one."""
    shown = (state / "tls" / "client.pem", state / "tls" / "client.key")
    return shown if shown[0].is_file() else None


def _api_key(state: Path) -> str:
    if key := os.environ.get("STARSHADE_API_KEY"):  # noqa: TID251 - the command's process edge
        return key
    try:
        return (state / "dev-api-key").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise CredentialMissing(f"there is no API key in {state}") from err


def _next_step(err: LoadTestError | PolicyError) -> str:
    if isinstance(err, LoadTestError):
        return err.next_step
    return "use production, development or the path of a sound policy file"


def _exit_code(err: Exception) -> int:
    codes: dict[type[Exception], int] = {
        GatewayNotAttested: EXIT_REJECTED,
        GatewayUnreachable: EXIT_UNAVAILABLE,
        GeneratorFailed: EXIT_INTERNAL,
        DatabaseUnusable: EXIT_CHECK_FAILED,
    }
    return codes.get(type(err), EXIT_USAGE)
