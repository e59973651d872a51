"""How does the server of each role start, and how does it stop?"""

import asyncio
import datetime as dt
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import uvicorn

from gateway.bounded_server import BoundedServer
from gateway.config import StarshadeConfig
from gateway.connections import KEEP_ALIVE_S, BoundedProtocol, PatientProtocol
from gateway.files import make_private_dir, require_private_dir
from gateway.sockets import BACKLOG, listen_tcp, listen_unix
from gateway.tls import ensure_certificates, ensure_client_certificate, server_context
from gateway.whereabouts import noted

_log = logging.getLogger(__name__)

_RENEW_CHECK_S = 3600


def serve_worker(config: StarshadeConfig) -> None:
    """Runs one worker on its Unix socket until SIGTERM. Raises: SocketTaken, OSError."""
    from gateway.worker.wiring import build_worker_app

    path = config.worker.socket
    if path.parent == config.paths.run_dir:
        make_private_dir(path.parent)
    require_private_dir(path.parent)
    listener = listen_unix(path)
    try:
        run_app(
            build_worker_app(config),
            listener,
            drain_s=config.gateway.drain_s,
            protocol=PatientProtocol,
            stays_open=True,
        )
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def serve_gateway(config: StarshadeConfig) -> None:
    """Runs the gateway with TLS 1.3 until SIGTERM. Raises: SocketTaken, OSError."""
    from gateway.wiring import build_gateway_app

    _renew(config)
    listener = listen_tcp(config.gateway.host, config.gateway.port)
    context = server_context(config.paths, client_ca=config.gateway.client_ca_file)
    port = listener.getsockname()[1]
    with noted(config.paths.gateway_address, host=config.gateway.host, port=port):
        run_app(
            build_gateway_app(config),
            listener,
            drain_s=config.gateway.drain_s,
            context=context,
            hourly=functools.partial(renew_certificate, config, context),
            stays_open=True,
        )


async def renew_certificate(config: StarshadeConfig, context: ssl.SSLContext) -> None:
    """Replaces what runs out; a failure is logged, for the server must not end with it.

    New handshakes use the new certificate; connections that stand are not touched.
    """
    try:
        await asyncio.to_thread(_renew, config)
        context.load_cert_chain(config.paths.server_cert, config.paths.server_key)
    except OSError as err:  # ssl.SSLError is one
        _log.error("the server certificate cannot be renewed", extra={"errno": err.errno})


def run_app(
    app: Any,
    listener: socket.socket,
    *,
    drain_s: int,
    context: ssl.SSLContext | None = None,
    hourly: Callable[[], Awaitable[None]] | None = None,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    stays_open: bool = False,
) -> None:
    """Serves an ASGI app on `listener` until SIGTERM; then streams get `drain_s` to finish.

    With `stays_open` the app answers meanwhile, and must refuse what it will not finish.
    """
    server = server_for(
        app,
        drain_s=drain_s,
        context=context,
        hourly=hourly,
        protocol=protocol,
        stays_open=stays_open,
    )
    server.owns_process = True
    server.run(sockets=[listener])


def server_for(
    app: Any,
    *,
    drain_s: int,
    context: ssl.SSLContext | None = None,
    hourly: Callable[[], Awaitable[None]] | None = None,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    stays_open: bool = False,
) -> BoundedServer:
    """The server of every role, not started."""
    settings = uvicorn.Config(
        app,
        loop="uvloop",
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
        callback_notify=hourly,
        timeout_notify=_RENEW_CHECK_S,
    )
    server = BoundedServer(settings)
    server.protocol = protocol
    server.stays_open = stays_open
    return server


def _renew(config: StarshadeConfig) -> None:
    make_private_dir(config.paths.tls_dir)
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - the process edge
    ensure_certificates(config.paths, config.gateway.hostnames, at=now)
    if config.gateway.client_ca_file is not None:
        ensure_client_certificate(config.paths, at=now)
