"""Do worker, gateway and dashboard run, and if not, could they start?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.config import StarshadeConfig
from gateway.doctor.finding import Finding, of_failure, ok, warning, wrong
from gateway.preflight import port_problem, same_port_problem
from gateway.probes import Answer
from gateway.sockets import SocketTaken

_REJECTED: Final = "upstream_verification_failed"
_START: Final = "start it with `starshade up`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the processes said when they were asked; ``key`` is None where there is no key."""

    worker: Answer
    gateway: Answer
    nodes: Answer
    dashboard_is_alive: bool
    is_dashboard_ours: bool
    key: Answer | None


def gateway_process(config: StarshadeConfig, asked: Asked) -> Finding:
    """Running and ready, or its port is free."""
    name, settings = "gateway", config.gateway
    if asked.gateway.ready:
        return ok(name, f"running on port {settings.port}, with a verified worker")
    if asked.gateway.is_alive:
        code = str(asked.gateway.body.get("code", "not_ready"))
        detail = str(asked.gateway.body.get("detail", "no reason was given"))
        return wrong(
            name, f"running, not ready: {detail}", code=code, next_step=_next(code, config)
        )
    shared = same_port_problem(config)
    failure = shared or port_problem("gateway", settings.host, settings.port, "--port")
    if shared is None and failure is not None and failure.code == SocketTaken.code:
        return _taken(name, settings.port, "--port")
    return of_failure(name, failure, well=f"not running, port {settings.port} is free; {_START}")


def dashboard_process(config: StarshadeConfig, asked: Asked) -> Finding:
    name, settings = "dashboard", config.observatory
    if asked.dashboard_is_alive and asked.is_dashboard_ours:
        return ok(name, f"running on port {settings.port}")
    if asked.dashboard_is_alive:
        return _taken(name, settings.port, "--dashboard-port")
    failure = port_problem("dashboard", settings.host, settings.port, "--dashboard-port")
    if failure is not None and failure.code == SocketTaken.code:
        return _taken(name, settings.port, "--dashboard-port")
    return of_failure(name, failure, well=f"not running, port {settings.port} is free")


def worker_process(config: StarshadeConfig, asked: Asked) -> Finding:
    """On this machine's own socket; a gateway may have others."""
    name, said = "worker", asked.worker
    if said.ready:
        return ok(name, f"running, serves {said.body.get('model', 'a model')}")
    if said.body.get("status") == "loading":
        ratio = said.body.get("progress")
        share = f" ({ratio:.0%})" if isinstance(ratio, int | float) else ""
        return ok(name, f"loading {config.worker.model}{share}")
    if said.is_alive:
        return wrong(
            name,
            "running, and cannot serve",
            code=str(said.body.get("code", "not_ready")),
            next_step=f"see {config.paths.logs_dir / 'worker.log'}",
        )
    return ok(name, "not running")


def verdicts(asked: Asked) -> list[Finding]:
    """One for each worker that the gateway knows."""
    entries = asked.nodes.body.get("data")
    return [
        _verdict(entry)
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
    ]


def api_key(config: StarshadeConfig, asked: Asked) -> Finding:
    """The one that `starshade up` keeps for this machine."""
    name = "API key"
    if asked.key is None:
        return ok(name, "none kept here; `starshade up` makes one, or `starshade keys create`")
    if asked.key.status in (401, 403):
        return wrong(
            name,
            f"the gateway refuses the one in {config.paths.dev_api_key}",
            code="invalid_api_key",
            next_step="restart `starshade up`: it makes a new one",
        )
    return ok(name, "accepted" if asked.key.ready else f"in {config.paths.dev_api_key}")


def _taken(name: str, port: int, option: str) -> Finding:
    """Ours would have noted where it listens, and answered there."""
    return wrong(
        name,
        f"not running, and port {port} is another program's or another installation's",
        code=SocketTaken.code,
        next_step=f"name that installation's folder with --state-dir, stop it, or use `starshade "
        f"up {option}` with a free port",
    )


def _verdict(entry: Mapping[str, Any]) -> Finding:
    name = f"verdict on {entry.get('id', 'a worker')}"
    state, code = str(entry.get("state")), str(entry.get("code") or "")
    until = entry.get("not_after")
    if state not in ("verified", "refreshing"):
        return wrong(
            name,
            f"{state}: nothing is sent to it",
            code=code or "upstream_unavailable",
            next_step="see docs/attestation.md for the code, and the worker's log",
        )
    if entry.get("simulated") is not False:
        return warning(
            name,
            f"{entry.get('tier')}, SIMULATED, until {until}",
            code=code or "tee_simulated",
            next_step="nothing to do on a development machine; it protects nothing",
        )
    return ok(name, f"{entry.get('tier')}, until {until}")


def _next(code: str, config: StarshadeConfig) -> str:
    if code == _REJECTED:
        return "use a machine with a supported TEE, or `starshade up --policy development`"
    return f"see {config.paths.logs_dir / 'gateway.log'} and worker.log"
