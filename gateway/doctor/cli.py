"""`starshade doctor`: everything is looked at, and what is not well comes with its next step."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from gateway.cli_support import ExitCode, config_options, environment
from gateway.config import ConfigError, StarshadeConfig, load_config
from gateway.doctor import installation, machine, running
from gateway.doctor.finding import Finding, is_well, ok, report, wrong
from gateway.doctor.running import Asked
from gateway.probes import NO_ANSWER, observatory_answers, probe_gateway, probe_worker
from gateway.process import utc_now
from gateway.snippets import base_url
from gateway.whereabouts import as_it_runs, find_observatory

_WORDS: Final = {"ok": "ok", "warning": "WARN", "wrong": "WRONG"}
_STYLES: Final = {"ok": "green", "warning": "bold yellow", "wrong": "bold red"}
_MAX_KEY_BYTES: Final = 512
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="\b\nExamples:\n  starshade doctor\n"
    "  starshade doctor https://models.example.org/v1 --ca-file ca.pem"
)
@click.argument("url", required=False)
@click.option("--policy", help="development (default), for URL production, or a TOML file.")
@click.option("--ca-file", type=_FILE, help="CA of URL's certificate.  [default: the system's]")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@config_options
@click.pass_context
def doctor(
    ctx: click.Context,
    url: str | None,
    policy: str | None,
    ca_file: Path | None,
    as_json: bool,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Say what is wrong with this set-up, and what to do next.

    Looks at the machine, the configuration, every file of the installation and the processes that
    run, as `starshade up` would use them; the gateway's evidence is judged as a client judges it.
    Changes nothing and fetches nothing. Where nothing else is configured the gateway is looked for
    on port 8443, the dashboard on port 8444.

    With URL it looks at that gateway instead, from here: network, certificate, evidence, clock.

    Exit codes: 0 nothing is wrong (warnings aside), 1 something is, 2 usage.
    """
    flags = {"policy": policy, "state_dir": state_dir, "cache_dir": cache_dir}
    if url is None:
        findings = list(examine(flags, config_file, now=utc_now()))
    else:
        folder = _collateral_folder(flags, config_file)
        findings = list(
            examine_remote(
                url, policy=policy or "production", ca_file=ca_file, collateral_folder=folder
            )
        )
    if as_json:
        click.echo(json.dumps(report(findings), indent=2))
    else:
        _show(findings)
    ctx.exit(ExitCode.SUCCESS if is_well(findings) else ExitCode.CHECK_FAILED)


def examine(
    flags: Mapping[str, object], config_file: Path | None, *, now: datetime
) -> Iterator[Finding]:
    """Every finding, the machine's first; without a sound configuration only those."""
    yield from _guarded("compiled kernels", machine.native_module)
    yield from _guarded("dashboard files", machine.dashboard)
    yield from _guarded("clock", lambda: machine.clock(now))
    yield from _guarded("open files", machine.open_files)
    try:
        config = load_config(
            flags=flags, environ=environment(), file=config_file, default_policy="development"
        )
    except ConfigError as err:
        for problem in err.problems:
            yield wrong(
                "configuration",
                str(problem),
                code=err.code,
                next_step="mend it where the message says; docs/configuration.md lists every key",
            )
        return
    where = "defaults, environment and flags" if config_file is None else str(config_file)
    yield ok("configuration", f"sound ({where})")
    yield from _of_installation(config, now)
    config = as_it_runs(config)
    yield from _of_processes(config, ask_processes(config))


def examine_remote(
    url: str, *, policy: str, ca_file: Path | None, collateral_folder: Path | None = None
) -> Iterator[Finding]:
    """What a client of the gateway at ``url`` needs; without a network there is no evidence."""
    from gateway.doctor import remote  # brings an HTTP client

    yield from _guarded("clock", lambda: machine.clock(utc_now()))
    (network,) = _guarded("network", lambda: remote.reachable(url))
    yield network
    if network.outcome == "ok":
        yield from _guarded(
            "gateway's evidence",
            lambda: remote.evidence(
                url, policy=policy, ca_file=ca_file, collateral_folder=collateral_folder
            ),
        )


def ask_processes(config: StarshadeConfig) -> Asked:
    """Each process once; those that do not run answer nothing, at once."""
    key = _kept_key(config)
    return Asked(
        worker=probe_worker(config.worker.socket),
        gateway=probe_gateway(config),
        nodes=probe_gateway(config, "/v1/nodes"),
        dashboard_is_alive=observatory_answers(config),
        is_dashboard_ours=find_observatory(config.paths) is not None,
        key=None if key is None else probe_gateway(config, "/v1/models", key=key),
    )


def _of_installation(config: StarshadeConfig, now: datetime) -> Iterator[Finding]:
    from gateway.doctor import databases  # brings the database's libraries

    checks: dict[str, Callable[[], Finding]] = {
        "state folder": lambda: installation.state_folder(config),
        "private files": lambda: installation.private_files(config),
        "worker's socket": lambda: installation.worker_socket(config),
        "server certificate": lambda: installation.certificate(config, now),
        "gateway database": lambda: databases.gateway_database(config),
        "audit log": lambda: databases.audit_log(config),
        "telemetry database": lambda: databases.telemetry_database(config),
        "appraisal policy": lambda: installation.policy(config),
        "CAs for collateral": lambda: installation.vendors_authorities(config),
        "TEE": lambda: machine.tee(config),
        "model": lambda: installation.model(config),
    }
    for name, check in checks.items():
        yield from _guarded(name, check)


def _of_processes(config: StarshadeConfig, asked: Asked) -> Iterator[Finding]:
    if asked.worker == NO_ANSWER:  # one that runs has its memory already
        yield from _guarded("memory", lambda: installation.memory(config))
    yield running.worker_process(config, asked)
    yield running.gateway_process(config, asked)
    yield running.dashboard_process(config, asked)
    yield running.api_key(config, asked)
    yield from running.verdicts(asked)
    if asked.gateway.is_alive:
        from gateway.doctor import remote

        yield from _guarded(
            "gateway's evidence",
            lambda: remote.evidence(
                base_url(config),
                policy=config.policy,
                ca_file=config.paths.ca_cert,
                collateral_folder=config.paths.collateral_dir,
                client_certificate=config.paths.client_certificate,
            ),
        )


def _guarded(name: str, check: Callable[[], Finding]) -> Iterator[Finding]:
    """A check that fails itself is a finding, and the others still run."""
    try:
        yield check()
    except Exception as err:  # the edge of the process: a doctor does not fall ill
        yield wrong(
            name,
            f"could not be looked at: {type(err).__name__}",
            code="internal_error",
            next_step="check who may read the files below the state folder",
        )


def _collateral_folder(flags: Mapping[str, object], config_file: Path | None) -> Path | None:
    """None, the user's own, where the configuration is not sound: it is not asked about here."""
    try:
        config = load_config(
            flags=flags, environ=environment(), file=config_file, default_policy="development"
        )
    except ConfigError:
        return None
    return config.paths.collateral_dir


def _kept_key(config: StarshadeConfig) -> str | None:
    try:
        with config.paths.dev_api_key.open("rb") as file:
            return file.read(_MAX_KEY_BYTES).decode("ascii").strip() or None
    except (OSError, ValueError):
        return None


def _show(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from attestation.commands.render import plain, plain_lines, plain_text, print_parts

    table = Table(box=None, pad_edge=False)
    for column in ("what", "is", "found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        found = Text(plain_lines(finding.found))
        if finding.outcome != "ok":
            found.append(plain(f" [{finding.code}]"), style="dim")
            found.append(plain_lines(f"\nnext: {finding.next_step}"), style="bold")
        word = Text(_WORDS[finding.outcome], style=_STYLES[finding.outcome])
        table.add_row(plain_text(finding.name), word, found)
    print_parts(table, Text(_summary(findings), style="bold"))


def _summary(findings: list[Finding]) -> str:
    num_wrong = sum(finding.outcome == "wrong" for finding in findings)
    num_warnings = sum(finding.outcome == "warning" for finding in findings)
    tail = f"{num_warnings} warning{'' if num_warnings == 1 else 's'}" if num_warnings else ""
    if not num_wrong:
        return "nothing is wrong" + (f", {tail}" if tail else "")
    verb = "thing is" if num_wrong == 1 else "things are"
    return f"{num_wrong} {verb} wrong" + (f", {tail}" if tail else "")
