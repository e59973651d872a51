"""A whole `starshade up` whose three children are tiny servers: real sockets, no model.

Run as a program: `up STATE GATEWAY_PORT VERDICT` supervises, `role NAME STATE GATEWAY_PORT VERDICT`
is one child.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.config import StarshadeConfig, load_config

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

NAMES = ("observatory", "worker", "gateway")
SLOW_PIECES, SLOW_PIECE_S = 25, 0.1  # of the gateway's /slow
DRAIN_S = 15
PROBE_INTERVAL_S, MAX_MISSES = 0.2, 3
READY = {"status": "ready", "model": "stand-in"}
NODES = {"data": [{"id": "worker-0", "simulated": True}]}
REFUSED = {
    "code": "upstream_verification_failed",
    "detail": "No worker passed attestation: untrusted_root.",
}


class StandInApp:
    """Answers everything with one JSON body; says in its log when it stops."""

    def __init__(self, name: str, status: int, body: dict[str, Any]) -> None:
        self.name = name
        self.status = status
        self.body = json.dumps(body).encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            sys.stderr.write(f"{time.monotonic_ns()} {self.name} stops\n")
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if scope["path"] == "/slow":
            for _ in range(SLOW_PIECES):
                await send({"type": "http.response.body", "body": b"piece.", "more_body": True})
                await asyncio.sleep(SLOW_PIECE_S)
        await send({"type": "http.response.body", "body": self.body})
        if scope["path"] == "/healthz":
            sys.stderr.write(f"{self.name} has answered\n")


def settings(state: Path, port: int) -> StarshadeConfig:
    flags = {"state_dir": state, "gateway.port": port, "worker.model": "stand-in"}
    return load_config(flags=flags, environ={}, default_policy="development")


def run_role(name: str, config: StarshadeConfig, verdict: str) -> None:
    from gateway.files import make_private_dir
    from gateway.servers import run_app
    from gateway.sockets import listen_tcp, listen_unix
    from gateway.tls import ensure_certificates, server_context

    sys.stderr.write(f"{os.getpid()} {name} starts\n")
    if name == "worker":
        run_app(StandInApp(name, 200, READY), listen_unix(config.worker.socket), drain_s=1)
        return
    if name == "observatory":
        run_app(StandInApp(name, 200, {}), listen_unix(config.paths.run_dir / "o.sock"), drain_s=1)
        return
    make_private_dir(config.paths.tls_dir)
    ensure_certificates(config.paths, (), at=datetime.now(UTC))  # noqa: TID251 - a process edge
    refused = verdict == "refuse"
    app = StandInApp(name, 503 if refused else 200, REFUSED if refused else NODES)
    listener = listen_tcp(config.gateway.host, config.gateway.port)
    context = server_context(config.paths)
    run_app(app, listener, drain_s=DRAIN_S, context=context, stays_open=True)


def run_up(config: StarshadeConfig, state: str, port: str, verdict: str) -> None:
    from gateway.preflight import prepare_state
    from gateway.probes import gateway_answers, worker_answers
    from gateway.supervisor import WATCH_FD, PatiencePolicy, Role
    from gateway.up import supervise

    prepare_state(config)
    program = (sys.executable, "-m", "tests.gateway.stand_in")
    children = [
        Role(name=n, argv=(*program, "role", n, state, port, verdict, WATCH_FD), stop_limit_s=20)
        for n in NAMES
    ]
    children[1] = replace(children[1], answers=lambda: worker_answers(config.worker.socket))
    children[2] = replace(children[2], answers=lambda: gateway_answers(config))
    environ = dict(os.environ)  # noqa: TID251 - a process edge
    patience = PatiencePolicy(
        interval_s=PROBE_INTERVAL_S, max_misses=MAX_MISSES, max_start_misses=1000
    )
    supervise(config, children, environ, patience=patience)


def main(arguments: list[str]) -> None:
    command, *rest = arguments
    if command == "up":
        state, port, verdict = rest
        run_up(settings(Path(state), int(port)), state, port, verdict)
    else:
        from gateway.watchdog import end_with_supervisor

        name, state, port, verdict, watch_fd = rest
        end_with_supervisor(int(watch_fd))
        run_role(name, settings(Path(state), int(port)), verdict)


if __name__ == "__main__":
    from gateway.cli_support import Failure

    try:
        main(sys.argv[1:])
    except Failure as err:
        err.show()
        sys.exit(err.exit_code)
