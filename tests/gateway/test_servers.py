"""Does a server stop without waiting for clients that do not listen, and outlive a renewal?"""

import datetime as dt
import http.client
import ssl
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway import servers, tls
from gateway.connections import BoundedServer
from gateway.paths import Paths
from gateway.probes import client_context
from gateway.sockets import listen_tcp
from tests.gateway.support import make_config

NOW = dt.datetime.now(dt.UTC)  # noqa: TID251 - OpenSSL verifies against the real clock
PATIENCE_S = 10.0  # asyncio's own for the end of a TLS connection is 30 s


def test_an_idle_client_does_not_delay_the_stop(tmp_path: Path) -> None:
    paths = Paths(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    tls.ensure_certificates(paths, (), at=NOW)
    context = tls.server_context(paths)
    app = Starlette(routes=[Route("/", lambda _request: PlainTextResponse("here"))])
    listener = listen_tcp("127.0.0.1", 0)
    port = listener.getsockname()[1]
    settings = uvicorn.Config(
        app,
        http="h11",
        log_config=None,
        timeout_graceful_shutdown=30,
        ssl_context_factory=lambda _config, _default: context,
    )
    server = BoundedServer(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    client = http.client.HTTPSConnection("127.0.0.1", port, context=client_context(paths))
    with closing(client):
        client.request("GET", "/")
        assert client.getresponse().read() == b"here"
        started_s = time.monotonic()
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"still there after {time.monotonic() - started_s:.0f} s"


class Unloadable(ssl.SSLContext):
    """A context that takes no new certificate."""

    def load_cert_chain(self, *_: object, **__: object) -> None:
        raise ssl.SSLError(1, "[SSL] KEY_VALUES_MISMATCH")


async def test_a_renewal_that_fails_does_not_end_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path)
    await servers.renew_certificate(config, Unloadable(ssl.PROTOCOL_TLS_SERVER))
    assert "cannot be renewed" in caplog.text
    assert config.paths.server_cert.is_file()
