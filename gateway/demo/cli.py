"""`starshade demo`: the minute in which an attacker tries three things, and what comes of each."""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.cli_support import ExitCode, Failure, environment
from gateway.config import StarshadeConfig, load_config
from gateway.models import DEFAULT_MODEL
from gateway.preflight import find_problems, model_to_pull
from gateway.sockets import free_port

if TYPE_CHECKING:
    from gateway.demo.scenes import Played
    from gateway.startup_display import Display

_OURS: Final = "STARSHADE_"
_TEXT_CHARS: Final = 100
_INTRO: Final = (
    "Worker, gateway and dashboard run on this machine; on the wire between gateway and worker "
    "sits an attacker.\nThe TEE is SIMULATED, so the good verdict is a warning here (amber); a "
    "real machine's is affirming (green)."
)


@click.command(epilog="\b\nExample:\n  starshade demo --step")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="Name or path of a model.")
@click.option("--port", type=int, help="Port of the gateway.  [default: a free one]")
@click.option("--dashboard-port", type=int, help="Port of the dashboard.  [default: a free one]")
@click.option("--cache-dir", type=click.Path(path_type=Path), help="Folder of the models.")
@click.option("--step", is_flag=True, help="Wait for Enter before each scene.")
@click.option("--json", "as_json", is_flag=True, help="Print what was seen as JSON.")
@click.pass_context
def demo(
    ctx: click.Context,
    model: str,
    port: int | None,
    dashboard_port: int | None,
    cache_dir: Path | None,
    step: bool,
    as_json: bool,
) -> None:
    """Show what happens when somebody interferes between gateway and worker.

    The same request five times: with nobody interfering, with one bit of the worker's quote
    flipped, with its HPKE key swapped, with its TCB revoked, and once the attacker is gone. Each
    time: the answer, its signed receipt, the dashboard's badge, and what went over the wire.

    Everything lives in a temporary folder and ends with the command. Exit codes: 0 all was as it
    must be, 1 something was not, 2 usage.
    """
    from rich.console import Console

    from gateway.startup_display import Display

    display = Display(Console(stderr=as_json))
    with tempfile.TemporaryDirectory(prefix="starshade-demo-") as folder:
        flags: dict[str, object] = {
            "state_dir": folder,
            "cache_dir": cache_dir,
            "policy": "development",
            "worker.model": model,
            "worker.tee": "fake",
            "gateway.port": port or free_port(),
            "observatory.port": dashboard_port or free_port(),
        }
        environ = {k: v for k, v in environment().items() if not k.startswith(_OURS)}
        wire = Path(folder) / "run" / "wire.sock"
        config = load_config(flags={**flags, "gateway.workers": (f"unix:{wire}",)}, environ=environ)
        _require_ready(config)
        played: list[Played] = []
        try:
            for scene in _play_all(config, flags, environ, wire, display, is_stepped=step):
                played.append(scene)
                if not as_json:
                    _show(display, len(played), scene)
        except Failure:
            _show_logs(display, config)  # they go with the folder
            raise
        audit = _audit(config)
    if as_json:
        click.echo(json.dumps(_document(played, audit), indent=2))
    display.say(f"\naudit log: {audit}")
    num_wrong = sum(bool(scene.wrong) for scene in played)
    words = "as it must be" if not num_wrong else f"{num_wrong} NOT as it must be"
    display.say(f"{len(played)} scenes, {words}", style="bold red" if num_wrong else "bold green")
    ctx.exit(ExitCode.CHECK_FAILED if num_wrong else ExitCode.SUCCESS)


def _play_all(
    config: StarshadeConfig,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    wire: Path,
    display: "Display",
    *,
    is_stepped: bool,
) -> "Iterator[Played]":
    from gateway.demo.scenes import SCENES, play
    from gateway.demo.stage import set_up

    names = {key: f"{_OURS}{key.upper().replace('.', '__')}" for key in flags}
    given = {names[key]: str(value) for key, value in flags.items() if value is not None}
    display.say(_INTRO)
    with display, set_up(config, {**environ, **given}, wire_socket=wire, shows=display) as stage:
        display.say(f"dashboard: {stage.dashboard} (leave it open: the badge changes)")
        for scene in SCENES:
            if is_stepped:
                click.pause(f"\nEnter for: {scene.title} ", err=True)
            yield play(scene, stage, unix_s=time.time)  # noqa: TID251 - the process edge


def _show(display: "Display", number: int, played: "Played") -> None:
    seen = played.seen
    display.say(f"\n{number}  {played.scene.title}", style="bold")
    text = " ".join(seen.text.split())[:_TEXT_CHARS]
    request = f"{seen.status} {seen.code or 'answered'}: {text}"
    receipt = f"{seen.receipt_id[:12]} says {seen.receipt_outcome}; " + (
        "signature and digests hold" if seen.receipt_code is None else f"{seen.receipt_code}"
    )
    forwarded = "nothing"
    if seen.num_forwarded:
        readable = "READABLE" if seen.is_prompt_readable else "not readable"
        forwarded = (
            f"{seen.num_forwarded} sealed request, {seen.num_forwarded_bytes} bytes, "
            f"the prompt {readable} in it"
        )
    badge = "not shown" if seen.badge is None else seen.badge.words
    is_red = seen.badge is not None and seen.badge.tier == "contraindicated"
    display.say(f"   request   {request}")
    display.say(f"   receipt   {receipt}")
    display.say(f"   badge     {badge}", style="bold red" if is_red else "bold yellow")
    display.say(f"   forwarded {forwarded}")
    for words in played.wrong:
        display.say(f"   NOT SO: {words}", style="bold red")


def _show_logs(display: "Display", config: StarshadeConfig) -> None:
    from gateway.supervisor import log_tail

    for log in sorted(config.paths.logs_dir.glob("*.log")):
        if tail := log_tail(log):
            display.say(f"last lines of {log.name}:")
            display.say("\n".join(f"  | {line}" for line in tail.splitlines()))


def _document(played: list["Played"], audit: str) -> dict[str, Any]:
    return {
        "schema": "starshade/demo/v1",
        "ok": not any(scene.wrong for scene in played),
        "audit": audit,
        "scenes": [
            {"title": p.scene.title, "wrong": list(p.wrong), "seen": asdict(p.seen)} for p in played
        ],
    }


def _audit(config: StarshadeConfig) -> str:
    """After the gateway has stopped: does its log hold, and does it name each refusal?"""
    from gateway.audit import REQUEST_REFUSED, WORKER_QUARANTINED
    from gateway.audit_chain import parse_event, verify_chain
    from gateway.db import audit as table
    from gateway.db import open_engine

    engine = open_engine(config.database_url)
    try:
        with engine.connect() as connection:
            stored = list(table.read_all(connection))
    finally:
        engine.dispose()
    verify_chain(stored)
    kinds = [parse_event(event).kind for event in stored]
    num_refused, num_bad = kinds.count(REQUEST_REFUSED), kinds.count(WORKER_QUARANTINED)
    return (
        f"{len(kinds)} events, each follows the one before it; {num_bad} quarantines, "
        f"{num_refused} refused requests"
    )


def _require_ready(config: StarshadeConfig) -> None:
    """Raises: Failure for the last problem; the others are shown."""
    from gateway.models_cli import pull_with_progress
    from gateway.preflight import prepare_state

    if problem := prepare_state(config):
        raise problem
    problems = find_problems(config)
    for problem in problems[:-1]:
        problem.show()
    if problems:
        raise problems[-1]
    if source := model_to_pull(config):
        pull_with_progress(source, config.paths)
