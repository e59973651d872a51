"""What stands on the stage?  A worker, a gateway, a dashboard, and the wire with the attacker."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from attestation.transport import SessionKeeper, client_over, gateway_keeper
from gateway.app import GatewayApp
from gateway.cli_support import ExitCode, Failure
from gateway.config import StarshadeConfig
from gateway.demo.attacks import Attack
from gateway.demo.loop import LoopThread
from gateway.demo.wire import Wire
from gateway.dev_key import ensure_dev_key
from gateway.probes import observatory_answers, probe_gateway, probe_worker
from gateway.process import utc_now
from gateway.snippets import base_url, dashboard_url
from gateway.sockets import listen_tcp, listen_unix
from gateway.startup import Probes, Shows, wait_until_ready
from gateway.supervisor import RestartPolicy, Supervisor
from gateway.tls import ensure_certificates, server_context
from gateway.up import MonotonicClock, roles
from gateway.wiring import build_gateway_app

BADGE_S: Final = 20.0  # a span waits for its batch, and the observatory for its writer
_CHILDREN: Final = ("observatory", "worker")
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """What the dashboard shows of the worker; ``words`` say which colour it has."""

    tier: str
    code: str | None
    is_simulated: bool
    appraised_s: float

    @property
    def words(self) -> str:
        simulated = ", SIMULATED" if self.is_simulated else ""
        return f"{self.tier}{simulated}" if self.code is None else f"{self.tier}: {self.code}"


@dataclass(slots=True, kw_only=True)
class Stage:
    """What a scene may use; ``client`` verifies the gateway and seals to it."""

    config: StarshadeConfig
    app: GatewayApp
    wire: Wire
    loop: LoopThread
    client: httpx.Client
    keeper: SessionKeeper
    url: str
    key: str = field(repr=False)

    @property
    def dashboard(self) -> str:
        return dashboard_url(self.config)

    def verify_anew(self, attack: Attack | None) -> None:
        """The gateway asks its worker for Evidence under ``attack``, as before a lease ends.

        Its spans are flushed, so that the dashboard shows what came of it.
        """
        self.wire.attack = attack
        directory = self.app.services.directory
        self.loop.run(directory.reattest(directory.nodes[0]))
        self.app.services.tracing.provider.force_flush()

    def badge(self, *, since_s: float) -> Badge | None:
        """Of an appraisal not older than ``since_s``, once it is shown; None when it is not."""
        give_up_s = time.monotonic() + BADGE_S
        while time.monotonic() < give_up_s:
            badge = self._badge()
            if badge is not None and badge.appraised_s >= since_s:
                return badge
            time.sleep(_POLL_S)
        return None

    def _badge(self) -> Badge | None:
        try:
            answer = httpx.get(f"{self.dashboard}api/workers", timeout=5.0, trust_env=False)
            workers: list[dict[str, Any]] = answer.json()["workers"]
        except (httpx.HTTPError, ValueError, KeyError):
            return None
        own = next((w for w in workers if w["id"] == self.config.worker.id), None)
        if own is None:
            return None
        return Badge(
            tier=own["tier"],
            code=own["code"],
            is_simulated=own["simulated"] is True,
            appraised_s=own["appraised_s"],
        )


@contextlib.contextmanager
def set_up(
    config: StarshadeConfig, environ: Mapping[str, str], *, wire_socket: Path, shows: Shows
) -> Iterator[Stage]:
    """Everything runs and the worker is verified; ``environ`` is the children's.

    The state folder is there, as `prepare_state` leaves it. Raises: Failure.
    """
    ensure_certificates(config.paths, config.gateway.hostnames, at=utc_now())
    ensure_dev_key(config, now_ns=time.time_ns())
    clock = MonotonicClock()
    with (
        _logging_to(config.paths.logs_dir / "gateway.log"),
        Supervisor(
            [role for role in roles(config, None) if role.name in _CHILDREN],
            logs_dir=config.paths.logs_dir,
            environ=environ,
            clock=clock,
            policy=RestartPolicy(max_quick_deaths=1),
            on_death=lambda death: shows.show(f"the {death.role} {death.how}"),
        ) as supervisor,
        LoopThread() as loop,
        _tapped(config, wire_socket, loop) as wire,
    ):
        supervisor.start()
        app = build_gateway_app(config)
        loop.serve(
            app,
            listen_tcp(config.gateway.host, config.gateway.port),
            context=server_context(config.paths),
        )
        _await_all(config, supervisor, shows, clock)
        url = base_url(config)
        keeper = gateway_keeper(url, policy=config.policy, ca_file=config.paths.ca_cert)
        with client_over(keeper, url, ca_file=config.paths.ca_cert) as client:
            yield Stage(
                config=config,
                app=app,
                wire=wire,
                loop=loop,
                client=client,
                keeper=keeper,
                url=url,
                key=config.paths.dev_api_key.read_text("ascii").strip(),
            )


@contextlib.contextmanager
def _tapped(config: StarshadeConfig, wire_socket: Path, loop: LoopThread) -> Iterator[Wire]:
    wire = Wire(config.worker.socket, utc_now=utc_now)
    try:
        loop.serve(wire, listen_unix(wire_socket))
        yield wire
    finally:
        loop.run(wire.aclose())


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """The gateway runs in this process, whose output is for the scenes."""
    handler, root = logging.FileHandler(path), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _await_all(
    config: StarshadeConfig, supervisor: Supervisor, shows: Shows, clock: MonotonicClock
) -> None:
    probes = Probes(
        worker=lambda: probe_worker(config.worker.socket),
        gateway=lambda: probe_gateway(config),
        nodes=lambda: probe_gateway(config, "/v1/nodes"),
    )
    wait_until_ready(config, supervisor, probes, shows, stop=lambda: False, sleep=clock.sleep_s)
    give_up_s = clock.now_s() + BADGE_S
    while not observatory_answers(config):
        supervisor.tick()
        if clock.now_s() > give_up_s:
            raise Failure(
                "the dashboard does not answer",
                exit_code=ExitCode.INTERNAL,
                code="process_failed",
                next_step=f"see {config.paths.logs_dir / 'observatory.log'}",
            )
        clock.sleep_s(_POLL_S)
