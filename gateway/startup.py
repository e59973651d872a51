"""Has everything that `starshade up` started become ready, and if it never will, why?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.cli_support import ExitCode, Failure
from gateway.config import StarshadeConfig
from gateway.probes import Answer

POLL_S: Final = 0.1
_REJECTED: Final = "upstream_verification_failed"
_FAILED: Final = "failed"
_NO_TEE: Final = "tee_unavailable"


class Ticking(Protocol):
    def tick(self) -> None: ...


class Shows(Protocol):
    def show(self, stage: str, ratio: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """How the two /readyz and the gateway's /v1/nodes are asked."""

    worker: Callable[[], Answer]
    gateway: Callable[[], Answer]
    nodes: Callable[[], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What is known once the gateway is ready. What was not said counts as simulated."""

    model: str
    is_simulated: bool


def wait_until_ready(
    config: StarshadeConfig,
    children: Ticking,
    probes: Probes,
    display: Shows,
    *,
    stop: Callable[[], bool],
    sleep: Callable[[float], None],
) -> Started | None:
    """Waits for the gateway to verify its worker; None when told to stop before that.

    Raises: Failure when the worker cannot load its model (1) or its Evidence was refused (10);
    whatever `children.tick` raises.
    """
    worker = Answer(status=0, body={})
    while not stop():
        children.tick()
        if not worker.ready:
            worker = probes.worker()
            _require_not_failed(worker, config)
        gateway = probes.gateway()
        if gateway.ready:
            return Started(
                model=_model(worker, config),
                is_simulated=not _all_real(probes.nodes()),
            )
        _require_not_refused(gateway, config)
        display.show(*_stage(worker, config))
        sleep(POLL_S)
    return None


def _stage(worker: Answer, config: StarshadeConfig) -> tuple[str, float | None]:
    if worker.ready:
        return "verifying the worker", None
    progress = worker.body.get("progress")
    if isinstance(progress, int | float):
        return f"loading {config.worker.model}", min(max(float(progress), 0.0), 1.0)
    return "starting worker, gateway and dashboard", None


def _require_not_failed(worker: Answer, config: StarshadeConfig) -> None:
    if worker.body.get("status") != _FAILED:
        return
    code = str(worker.body.get("code", "model_load_failed"))
    if code == _NO_TEE:
        raise _refused(code, config)
    raise Failure(
        f"the worker cannot serve {config.worker.model}",
        exit_code=ExitCode.CHECK_FAILED,
        code=code,
        next_step=f"see {config.paths.logs_dir / 'worker.log'}, or choose another --model",
    )


def _require_not_refused(gateway: Answer, config: StarshadeConfig) -> None:
    if gateway.body.get("code") == _REJECTED:
        raise _refused(_last_word(gateway.body.get("detail")) or _REJECTED, config)


def _refused(code: str, config: StarshadeConfig) -> Failure:
    return Failure(
        f"the policy {config.policy!r} refuses this worker: its TEE is simulated or not as the "
        "policy demands",
        exit_code=ExitCode.REJECTED,
        code=code,
        next_step="use a machine with a supported TEE, or `starshade up --policy development` for "
        "a simulated one that protects nothing",
    )


def _all_real(nodes: Answer) -> bool:
    entries = nodes.body.get("data")
    if not isinstance(entries, list) or not entries:
        return False
    return all(isinstance(node, dict) and node.get("simulated") is False for node in entries)


def _last_word(detail: object) -> str:
    """The cause at the end of `No worker passed attestation: untrusted_root.`"""
    return str(detail).rsplit(": ", 1)[-1].rstrip(".") if detail else ""


def _model(worker: Answer, config: StarshadeConfig) -> str:
    named = worker.body.get("model")
    return named if isinstance(named, str) else config.worker.model
