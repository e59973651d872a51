"""`starshade up`: one worker, one gateway and one observatory on this machine, kept alive.

1. Check everything that can be checked first.
2. Fetch the model when it is missing.
3. Start the children and wait until the gateway has verified its worker.
4. Say what runs, how confidential it is, and how to use it.
5. Restart what dies or is stuck until told to stop; stop in the order gateway, worker, observatory.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from gateway.cli_support import ExitCode, Failure, config_options, environment, read_config
from gateway.config import StarshadeConfig
from gateway.faults import os_error_text
from gateway.models_cli import pull_with_progress
from gateway.preflight import (
    find_problems,
    model_to_pull,
    only_one_up,
    prepare_state,
    unwritable_state,
)
from gateway.probes import (
    gateway_answers,
    observatory_answers,
    probe_gateway,
    probe_worker,
    worker_answers,
)
from gateway.snippets import (
    activation_snippet,
    base_url,
    curl_snippet,
    dashboard_url,
    environment_snippet,
    openai_snippet,
)
from gateway.startup import Probes, Started, wait_until_ready
from gateway.supervisor import WATCH_FD, GaveUp, PatiencePolicy, RestartPolicy, Role, Supervisor

if TYPE_CHECKING:
    from gateway.startup_display import Display

SIMULATED_WARNING: Final = (
    "SIMULATED TEE: sealed and attested as with a real one, but under a test root; whoever "
    "runs this machine can read everything. For development only."
)
STOP_ORDER = ("gateway", "worker", "observatory")
_WATCH_POLL_S = 0.2
_STOP_MARGIN_S = 5.0  # beyond the time that streams get to finish


@click.command(
    epilog="\b\nExample:\n  starshade up --port 9443 --dashboard-port 9444 --state-dir ./state"
)
@click.option("--policy", help="Appraisal policy: development (default), production or a file.")
@click.option("--model", help="Name of a model, or the path of a GGUF file or safetensors folder.")
@click.option("--port", "gateway_port", type=int, help="Port of the gateway.  [default: 8443]")
@click.option("--dashboard-port", type=int, help="Port of the dashboard.  [default: 8444]")
@config_options
def up(
    policy: str | None,
    model: str | None,
    gateway_port: int | None,
    dashboard_port: int | None,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Start a worker, the gateway and the dashboard on this machine, and keep them running."""
    flags = {
        "policy": policy,
        "worker.model": model,
        "gateway.port": gateway_port,
        "observatory.port": dashboard_port,
        "state_dir": state_dir,
        "cache_dir": cache_dir,
    }
    config = read_config(config_file, flags, default_policy="development")
    if problem := prepare_state(config):
        raise problem
    with only_one_up(config.paths.up_lock):
        _require_no_problems(config)
        if source := model_to_pull(config):
            pull_with_progress(source, config.paths)
        supervise(config, roles(config, config_file), child_environment(config, flags))


class StopRequests:
    """Counts Ctrl-C, SIGTERM and SIGHUP: one asks to stop, a second one insists."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def asked(self) -> bool:
        return self.count > 0

    def insisted(self) -> bool:
        return self.count > 1


class MonotonicClock:
    """Time as the supervisor sees it; this is a process edge."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, duration_s: float) -> None:
        time.sleep(duration_s)


def child_environment(config: StarshadeConfig, flags: Mapping[str, object]) -> dict[str, str]:
    """Our own environment, with every flag as the variable that the children read."""
    settled: dict[str, object] = {key: value for key, value in flags.items() if value is not None}
    settled |= {
        "state_dir": config.state_dir,
        "policy": config.policy,
    }
    names = {key: f"STARSHADE_{key.upper().replace('.', '__')}" for key in settled}
    return environment() | {names[key]: str(value) for key, value in settled.items()}


def roles(config: StarshadeConfig, config_file: Path | None) -> list[Role]:
    """The children in the order they are started, each this same Python."""
    chosen = [] if config_file is None else ["--config", str(config_file.absolute())]
    commands = {
        "observatory": ["observatory", *chosen],
        "worker": ["worker", *chosen],
        "gateway": ["serve", "--keep-dev-key", *chosen],
    }
    limit_s = config.gateway.drain_s + _STOP_MARGIN_S
    answers: dict[str, Callable[[], bool]] = {
        "observatory": lambda: observatory_answers(config),
        "worker": lambda: worker_answers(config.worker.socket),
        "gateway": lambda: gateway_answers(config),
    }
    return [
        Role(
            name=name,
            argv=(*_python(), "--watch-fd", WATCH_FD, *command),
            stop_limit_s=limit_s,
            is_essential=name != "observatory",  # without it requests go on, only spans are lost
            answers=answers[name],
        )
        for name, command in commands.items()
    ]


def _python() -> list[str]:
    """This interpreter and program; a stray package in the working folder is not picked up."""
    package_root = Path(__file__).resolve().parents[1]
    safe = [] if package_root == Path.cwd() else ["-P"]
    return [sys.executable, *safe, "-m", "gateway.cli"]


def _require_no_problems(config: StarshadeConfig) -> None:
    """Shows every problem; the last one ends the command."""
    problems = find_problems(config)
    for problem in problems[:-1]:
        problem.show()
    if problems:
        raise problems[-1]


def supervise(
    config: StarshadeConfig,
    children: Sequence[Role],
    environ: Mapping[str, str],
    *,
    patience: PatiencePolicy = PatiencePolicy(),  # noqa: B008 - immutable
) -> None:
    """Runs until told to stop. Raises: Failure, after everything has stopped."""
    requests, clock = StopRequests(), MonotonicClock()
    started_s = clock.now_s()
    failure: Failure | None = None
    with Supervisor(
        children,
        logs_dir=config.paths.logs_dir,
        environ=environ,
        clock=clock,
        policy=RestartPolicy(),
        patience=patience,
        on_death=lambda death: display.tell_death(death),
    ) as supervisor:
        try:
            supervisor.start()
        except OSError as err:
            raise unwritable_state(config.state_dir, os_error_text(err)) from err
        display = _display()
        try:
            _run(config, supervisor, display, requests, clock, started_s)
        except GaveUp as err:
            display.tell_tail(err.death)
            failure = Failure(
                str(err),
                exit_code=ExitCode.INTERNAL,
                code=err.code,
                next_step=f"see {err.death.log}",
            )
        except Failure as err:
            failure = err
        except OSError as err:  # a child's log cannot be opened, or no process be started
            failure = unwritable_state(config.state_dir, os_error_text(err))
        display.say("stopping (once more to kill)")
        for name in supervisor.stop(STOP_ORDER, hurry=requests.insisted):
            display.say(f"the {name} did not stop in time and was killed", style="bold red")
        display.say("stopped")
    if failure is not None:
        raise failure


def _run(
    config: StarshadeConfig,
    supervisor: Supervisor,
    display: "Display",
    requests: StopRequests,
    clock: MonotonicClock,
    started_s: float,
) -> None:
    probes = Probes(
        worker=lambda: probe_worker(config.worker.socket),
        gateway=lambda: probe_gateway(config),
        nodes=lambda: probe_gateway(config, "/v1/nodes"),
    )
    with display:
        started = wait_until_ready(
            config, supervisor, probes, display, stop=requests.asked, sleep=clock.sleep_s
        )
    if started is not None:
        _announce(display, config, started, took_s=clock.now_s() - started_s)
    while not requests.asked():
        supervisor.tick()
        clock.sleep_s(_WATCH_POLL_S)


def _announce(
    display: "Display", config: StarshadeConfig, started: Started, *, took_s: float
) -> None:
    if started.is_simulated:
        display.say(SIMULATED_WARNING, style="bold black on yellow")
    display.say(
        f"ready in {took_s:.1f} s: {started.model} at {base_url(config)} (policy {config.policy})",
        style="bold green",
    )
    display.say(f"dashboard: {dashboard_url(config)}")
    display.say(f"logs: {config.paths.logs_dir}")
    for title, text in (
        ("# in another shell:", activation_snippet(Path(sys.prefix)) + environment_snippet(config)),
        ("# curl:", curl_snippet(config, started.model)),
        ("# Python, pip install openai:", openai_snippet(config, started.model)),
    ):
        display.say(f"\n{title}\n{text}")
    display.say("\nverified and sealed, for any program: starshade connect")
    display.say("what is wrong, if anything: starshade doctor")
    display.say("\nCtrl-C stops everything")


def _display() -> "Display":
    """Rich takes a moment to import: the children start meanwhile."""
    from rich.console import Console

    from gateway.startup_display import Display

    return Display(Console())
