"""A real observatory on a real port, for tests that speak HTTP to it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import uvicorn
from fastapi import FastAPI

from telemetry.db.writer import TelemetryWriter
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Observatory:
    """A running observatory and a client that talks to it."""

    app: FastAPI
    base_url: str
    client: httpx.Client

    @property
    def writer(self) -> TelemetryWriter:
        """The one writer of its database."""
        writer: TelemetryWriter = self.app.state.writer
        return writer


@contextmanager
def serve(app: FastAPI) -> Iterator[Observatory]:
    """Serve ``app`` by uvicorn in a thread on a free loopback port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        give_up = time.monotonic() + PATIENCE_S
        while not server.started:
            if not thread.is_alive() or time.monotonic() > give_up:
                raise RuntimeError("the observatory did not start")
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        base_url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base_url, trust_env=False, timeout=PATIENCE_S) as client:
            yield Observatory(app=app, base_url=base_url, client=client)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
