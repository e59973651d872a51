"""Is a process of this machine ready, and if not, what does it say about itself?"""

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config import StarshadeConfig
from gateway.paths import Paths

PROBE_TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 64 * 1024
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what to call instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a process said; `status` 0 means that nobody answered."""

    status: int
    body: Mapping[str, Any]

    @property
    def is_alive(self) -> bool:
        return self.status != 0

    @property
    def ready(self) -> bool:
        return self.status == http.client.OK


NO_ANSWER = Answer(status=0, body={})


def probe_worker(path: Path) -> Answer:
    """The worker's /readyz over its Unix socket."""
    return _get(_UnixConnection(path), "/readyz")


def worker_answers(path: Path) -> bool:
    """Whether the worker lives; it answers while it loads its model, too."""
    return _get(_UnixConnection(path), "/healthz").is_alive


def gateway_answers(config: StarshadeConfig) -> bool:
    """Whether the gateway lives; a refusal is an answer.

    Nothing secret is said and nothing believed, so its certificate does not matter: a lost `ca.pem`
    must not make it look dead.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError):  # ssl.SSLError is one: an unreadable certificate must not kill it
        _show_client_certificate(context, config.paths)
    connection = http.client.HTTPSConnection(
        reachable_host(config.gateway.host),
        config.gateway.port,
        timeout=PROBE_TIMEOUT_S,
        context=context,
    )
    return _get(connection, "/healthz").is_alive


def observatory_answers(config: StarshadeConfig) -> bool:
    host, port = reachable_host(config.observatory.host), config.observatory.port
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)
    return _get(connection, "/healthz").is_alive


def probe_gateway(
    config: StarshadeConfig, path: str = "/readyz", *, key: str | None = None
) -> Answer:
    """What the gateway says at `path`, over TLS, trusting this installation's authority alone."""
    try:
        context = client_context(config.paths)
    except (OSError, ssl.SSLError):
        return NO_ANSWER  # the authority is made when the gateway starts for the first time
    host = reachable_host(config.gateway.host)
    connection = http.client.HTTPSConnection(
        host, config.gateway.port, timeout=PROBE_TIMEOUT_S, context=context
    )
    return _get(connection, path, {} if key is None else {"authorization": f"Bearer {key}"})


def client_context(paths: Paths) -> ssl.SSLContext:
    """A client of this machine's own gateway: TLS 1.3, and `ca.pem` alone is trusted.

    It shows `tls/client.pem`, which is there when the gateway wants to see one.

    Raises: OSError or ssl.SSLError when `ca.pem` is absent or damaged.
    """
    context = ssl.create_default_context(cafile=str(paths.ca_cert))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _show_client_certificate(context, paths)
    return context


def _show_client_certificate(context: ssl.SSLContext, paths: Paths) -> None:
    if (shown := paths.client_certificate) is not None:
        context.load_cert_chain(*shown)


def reachable_host(host: str) -> str:
    """Where to call a server that listens on `host`."""
    return _ANY_ADDRESS.get(host, host)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PROBE_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PROBE_TIMEOUT_S)
        self.sock.connect(str(self._path))


def _get(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] = _NO_HEADERS
) -> Answer:
    try:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        raw = response.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException):
        return NO_ANSWER
    finally:
        connection.close()
    return Answer(status=response.status, body=_object(raw))


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
