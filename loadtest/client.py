"""How does one attested, streamed request run, with honest clocks?

Locust's own streaming helpers read in blocks and report a first token that arrives with the last
one. Here every line is time-stamped as it leaves the socket and decoded after the stream ended.
Each new connection's TLS key must be the one that the gateway attested.
"""

import hashlib
import hmac
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from geventhttpclient import HTTPClient
from geventhttpclient.connectionpool import ConnectionPool
from geventhttpclient.response import HTTPParseError

from loadtest.sse import StreamFacts, TimedLine, parse_stream

MAX_STREAM_BYTES = 64 * 1024 * 1024  # one answer; far above any model's context
MAX_ERROR_BYTES = 64 * 1024
READ_TIMEOUT_S = 300.0


class PinMismatch(ssl.SSLError):
    """The connection's TLS key is not the attested one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to send load, and what proves that it is the right place."""

    host: str
    port: int
    path_prefix: str  # "/v1"
    ca_path: Path
    spki_sha256: str  # lower-case hex of the attested TLS key
    client_certificate: tuple[Path, Path] | None = None  # with its key, where one has to be shown

    def client(self, *, concurrency: int) -> HTTPClient:
        """An HTTP/1.1 client of its own pool; safe for one greenlet per connection."""
        client = HTTPClient(
            self.host,
            self.port,
            ssl=True,
            ssl_context_factory=self._context,
            concurrency=concurrency,
            network_timeout=READ_TIMEOUT_S,
            connection_timeout=10.0,
        )
        pool = client._connection_pool  # noqa: SLF001 - the library offers no connect hook
        _pin(pool, self.spki_sha256)
        return client

    def _context(self, **_: object) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_path))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if self.client_certificate is not None:
            context.load_cert_chain(*self.client_certificate)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """What came back; ``first_byte_ns`` is the arrival of the first body line."""

    status: int
    first_byte_ns: int | None
    ended_ns: int
    facts: StreamFacts


def spki_sha256(certificate_der: bytes) -> str:
    """Lower-case hex SHA-256 of a certificate's SubjectPublicKeyInfo.  [RFC 7469 sec. 2.4]"""
    key = x509.load_der_x509_certificate(certificate_der).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def stream_chat(
    client: HTTPClient,
    path: str,
    body: Mapping[str, object],
    *,
    headers: Mapping[str, str],
    clock_ns: Callable[[], int],
) -> StreamOutcome:
    """Send one chat request and read its stream to the end.

    A stream that breaks off keeps what arrived, with the error ``stream_truncated``.

    Raises: OSError when no answer came at all.
    """
    payload = json.dumps(body, separators=(",", ":")).encode()
    sent = {"content-type": "application/json", **headers}
    try:
        response = client.request("POST", path, body=payload, headers=sent)
    except HTTPParseError as err:
        raise ConnectionError("the server did not answer in HTTP") from err
    try:
        status = int(response.status_code)
        if status != 200:
            facts = _error_facts(bytes(response.read(MAX_ERROR_BYTES)))
            ended_ns = clock_ns()
            return StreamOutcome(
                status=status, first_byte_ns=ended_ns, ended_ns=ended_ns, facts=facts
            )
        lines = _read_lines(response, clock_ns)
        first_byte_ns = lines[0].at_ns if lines else None
        ended_ns = clock_ns()
        facts = parse_stream(lines)
        return StreamOutcome(
            status=status, first_byte_ns=first_byte_ns, ended_ns=ended_ns, facts=facts
        )
    finally:
        response.release()


def _read_lines(response: Any, clock_ns: Callable[[], int]) -> list[TimedLine]:
    lines: list[TimedLine] = []
    num_bytes = 0
    while num_bytes <= MAX_STREAM_BYTES:
        try:
            raw = response.readline(b"\n")
        except (HTTPParseError, OSError):  # cut off: without [DONE] it counts as truncated
            break
        at_ns = clock_ns()
        if not raw:
            break
        num_bytes += len(raw)
        if data := raw.rstrip(b"\r\n"):
            lines.append(TimedLine(at_ns, data))
    return lines


def _error_facts(body: bytes) -> StreamFacts:
    facts = StreamFacts()
    try:
        error = json.loads(body)["error"]
        facts.error_code = str(error["code"])
    except (ValueError, KeyError, TypeError):
        facts.error_code = None
    return facts


def _pin(pool: ConnectionPool, expected: str) -> None:
    """Check the attested key on every connection that this pool opens."""
    connect = pool._connect_socket  # noqa: SLF001

    def connect_pinned(sock: Any, address: Any) -> Any:
        connected = connect(sock, address)
        seen = spki_sha256(connected.getpeercert(binary_form=True))
        if not hmac.compare_digest(seen, expected):
            connected.close()
            raise PinMismatch("the gateway's TLS key is not the one that it attested")
        return connected

    pool._connect_socket = connect_pinned  # type: ignore[method-assign]  # noqa: SLF001
