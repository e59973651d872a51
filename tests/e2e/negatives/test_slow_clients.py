"""Clients that are slow on purpose: attack 22 of docs/threat-model.md.

The gateway runs in the server of the product, with shorter deadlines. While an attacker holds what
it can, another tenant asks and is answered; what was held comes back.
"""

import contextlib
import functools
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

import gateway.wiring
from attestation.channel import CHUNKED_REQUEST_TYPE, bhttp
from gateway.bounded_server import BoundedServer
from gateway.connections import BoundedProtocol
from gateway.limits import RequestLimits
from tests.e2e.negatives.conftest import MakeScene
from tests.e2e.negatives.scene import CANARY, CHAT, Scene
from tests.e2e.negatives.test_sealed_door import inner, seal
from tests.gateway.support import wait_until
from tests.support.patience import PATIENCE_S

DEADLINE_S = 0.5  # for what only attackers do here
HONEST_S = 3.0  # for what others do as well, on a machine that is busy
MAX_CONNECTIONS = 32
NUM_HELD = 100


class HastyProtocol(BoundedProtocol):
    header_deadline_s = HONEST_S
    reader_stall_s = DEADLINE_S
    max_connections = MAX_CONNECTIONS


class HastyServer(BoundedServer):
    protocol = HastyProtocol
    handshake_deadline_s = HONEST_S


@pytest.fixture
def hasty(make_scene: MakeScene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    limits = functools.partial(RequestLimits, body_deadline_s=HONEST_S)
    monkeypatch.setattr(gateway.wiring, "RequestLimits", limits)
    with make_scene(server=HastyServer) as made:
        yield made


def connect(made: Scene, *, rcvbuf_bytes: int | None = None) -> ssl.SSLSocket:
    with ExitStack() as stack:
        raw = stack.enter_context(closing(socket.socket()))
        if rcvbuf_bytes is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf_bytes)
        raw.settimeout(PATIENCE_S)
        raw.connect(("127.0.0.1", made.running.gateway.port))
        wrapped = made.running.tls_context().wrap_socket(raw, server_hostname="localhost")
        stack.pop_all()
        return wrapped


def head(made: Scene, path: str, media_type: str, num_bytes: int) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {made.running.key}",
        f"Content-Type: {media_type}",
        f"Content-Length: {num_bytes}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def answered(connection: ssl.SSLSocket) -> bytes:
    """A whole answer of one piece, or nothing from a connection that was cut."""
    data = b""
    with contextlib.suppress(OSError):
        while not data.endswith(b"}") and (piece := connection.recv(65536)):
            data += piece
    return data


def assert_others_are_served(made: Scene) -> None:
    assert made.ask().status_code == 200
    made.computed.clear()
    made.answers.clear()


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_body_that_stalls(hasty: Scene, is_sealed: bool) -> None:
    """Of a sealed request it is the final chunk that never comes."""
    path = "/ohttp" if is_sealed else CHAT
    media_type = CHUNKED_REQUEST_TYPE if is_sealed else "application/json"
    _, sealed = seal(hasty, bhttp.serialize_request(inner(hasty)))
    body = sealed[:-20] if is_sealed else CANARY.encode()
    with closing(connect(hasty)) as stalled:
        stalled.sendall(head(hasty, path, media_type, len(body) + 20) + body)
        assert_others_are_served(hasty)
        answer = answered(stalled)
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"request_timeout" in answer
    hasty.answers.append(answer.decode("latin-1"))
    hasty.wait_for_event("request_refused", code="request_timeout", endpoint=path)
    hasty.assert_nothing_computed()
    hasty.assert_no_secret()


def test_headers_that_drip_and_connections_that_idle(hasty: Scene) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(closing(connect(hasty))) for _ in range(NUM_HELD)]
        for connection in held[::2]:
            with contextlib.suppress(OSError):  # some have given way already
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nx-a: ")
        for _ in range(5):
            assert_others_are_served(hasty)
            for connection in held[::2]:
                with contextlib.suppress(OSError):
                    connection.sendall(b"x")
        started_s = time.monotonic()
        for connection in held:
            assert answered(connection) == b""
        assert time.monotonic() - started_s < PATIENCE_S
    hasty.assert_nothing_computed()


def test_a_stream_that_nobody_reads(hasty: Scene) -> None:
    running = hasty.running
    running.gateway._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    long = {"max_tokens": 4000, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    body = running.body(CANARY, stream=True, **long)
    with running.http() as client:
        content = client.build_request("POST", CHAT, json=body).content
    with closing(connect(hasty, rcvbuf_bytes=4096)) as silent:
        silent.sendall(head(hasty, CHAT, "application/json", len(content)) + content)
        wait_until(lambda: running.worker_get("/stats").json()["open"] == 1)
        assert_others_are_served(hasty)
        wait_until(lambda: running.worker_get("/stats").json()["open"] == 0, timeout_s=60)
    wait_until(lambda: '"error.type": "slow_reader"' in running.exported())
    assert running.gateway.app.services.quotas.open_tokens == 0
    hasty.assert_no_secret()
