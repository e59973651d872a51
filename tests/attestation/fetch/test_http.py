"""Fetching is bounded in time, bytes, attempts and directions, whatever the server does."""

import datetime as dt
import ipaddress
import random
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from attestation.fetch.config import FetchConfig
from attestation.fetch.errors import FetchConfigError, FetchFailed
from attestation.fetch.http import MAX_BACKOFF_S, Answer, Asked, Fetcher
from tests.attestation.fetch.service import FakeService, Reply, Route

_PATH = "/thing"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


def _fetch(
    service: FakeService, *routes: Route, waits: list[float] | None = None, **settings: object
) -> Answer:
    if routes:
        service.routes[_PATH] = list(routes)
    config = FetchConfig(urls={"pcs": (service.url,)}, **settings)  # type: ignore[arg-type]
    slept = [] if waits is None else waits
    with Fetcher(config, rng=random.Random(1), sleep=slept.append) as fetcher:
        return fetcher.fetch(_asked(service.url))


def _asked(base: str, **changes: object) -> Asked:
    asked = Asked(
        service="pcs",
        base=base,
        path=_PATH,
        params={"fmspc": "00806f050000"},
        what="thing",
        code="endorsement_missing",
        max_bytes=1000,
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


def _failure(service: FakeService, *routes: Route, **settings: Any) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        _fetch(service, *routes, **settings)
    error = caught.value
    assert error.code == "endorsement_missing"
    assert "00806f050000" not in str(error)
    return error


def test_an_answer_is_its_bytes_and_headers(service: FakeService) -> None:
    answer = _fetch(service, Reply(content=b"\x00yes", headers={"X-Own": "value"}))

    assert answer.content == b"\x00yes"
    assert answer.headers["x-own"] == "value"
    (call,) = service.calls
    assert (call.method, call.params) == ("GET", {"fmspc": "00806f050000"})
    assert call.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_service_that_recovers_is_asked_again(service: FakeService, status: int) -> None:
    waits: list[float] = []

    answer = _fetch(service, Reply(status=status), Reply(content=b"ok"), waits=waits)

    assert answer.content == b"ok"
    assert len(waits) == 1
    assert 0.25 <= waits[0] <= 0.5


def test_attempts_end_and_waits_grow_with_jitter(service: FakeService) -> None:
    waits: list[float] = []

    error = _failure(service, Reply(status=503), waits=waits, attempts=8)

    assert error.reason == "unreachable"
    assert len(service.calls) == 8
    assert [wait <= min(MAX_BACKOFF_S, 0.5 * 2**n) for n, wait in enumerate(waits)] == [True] * 7
    assert len({wait / min(MAX_BACKOFF_S, 0.5 * 2**n) for n, wait in enumerate(waits)}) == 7


@pytest.mark.parametrize(
    ("said", "wait"), [("3", 3.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 10.0), ("-1", 10.0)]
)
def test_a_service_says_how_long_to_wait(service: FakeService, said: str, wait: float) -> None:
    waits: list[float] = []

    _fetch(
        service,
        Reply(status=429, headers={"Retry-After": said}),
        Reply(content=b"ok"),
        waits=waits,
    )

    assert waits == [wait]


def test_a_service_that_wants_hours_is_not_waited_for(service: FakeService) -> None:
    waits: list[float] = []

    error = _failure(service, Reply(status=503, headers={"Retry-After": "3600"}), waits=waits)

    assert (error.reason, waits, len(service.calls)) == ("unreachable", [], 1)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "not_found"), (410, "not_found"), (400, "refused"), (401, "refused"), (204, "refused")],
)
def test_no_is_no_at_once(service: FakeService, status: int, reason: str) -> None:
    error = _failure(service, Reply(status=status))

    assert (error.reason, len(service.calls)) == (reason, 1)


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_too_much_is_not_read(service: FakeService, headers: dict[str, str]) -> None:
    content = b"x" * 1001
    if headers:
        content = b"3e9\r\n" + content + b"\r\n0\r\n\r\n"
    error = _failure(service, Reply(content=content, headers=headers))

    assert (error.reason, len(service.calls)) == ("too_large", 1)


def test_the_longest_that_is_read(service: FakeService) -> None:
    assert len(_fetch(service, Reply(content=b"x" * 1000)).content) == 1000


def test_an_answer_that_ends_early_is_no_answer(service: FakeService) -> None:
    assert _failure(service, Reply(content=b"half", cut=True)).reason == "unreachable"


def test_a_compressed_answer_was_not_asked_for(service: FakeService) -> None:
    reply = Reply(content=b"x", headers={"Content-Encoding": "gzip"})

    assert _failure(service, reply).reason == "content"


@pytest.mark.parametrize(
    "reply", [Reply(content=b"x" * 900, drip_s=0.1), Reply(content=b"x", head_drip_s=0.1)]
)
def test_time_is_bounded_over_all_even_when_bytes_keep_coming(
    service: FakeService, reply: Reply
) -> None:
    assert _failure(service, reply, timeout_s=1, attempts=1).reason == "timeout"


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    config = FetchConfig(urls={"pcs": (base,)}, attempts=2)
    with (
        Fetcher(config, rng=random.Random(1), sleep=lambda _: None) as fetcher,
        pytest.raises(FetchFailed) as caught,
    ):
        fetcher.fetch(_asked(base))

    assert caught.value.reason == "unreachable"


def test_not_even_http(service: FakeService) -> None:
    assert _failure(service, Reply(headers={"bad header\x00": "x"})).reason == "unreachable"


def test_a_redirect_to_a_configured_host_is_followed(service: FakeService) -> None:
    service.routes["/elsewhere"] = Reply(content=b"there")

    answer = _fetch(service, Reply(status=307, headers={"Location": "/elsewhere"}))

    assert answer.content == b"there"
    assert service.paths == [_PATH, "/elsewhere"]


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.example/",
        "https://evil.example/thing",
        "https://127.0.0.1/thing",
        "https://127.0.0.1:{port}/thing",
        "//localhost/thing",
        "file:///etc/passwd",
        "http://user:secret@127.0.0.1:{port}/thing",
        "http://[broken",
        "",
    ],
)
def test_other_redirects_are_refused(service: FakeService, location: str) -> None:
    reply = Reply(status=302, headers={"Location": location.format(port=service.port)})

    error = _failure(service, reply)

    assert error.reason == "redirect"
    assert "secret" not in str(error)
    assert service.paths == [_PATH]


def test_redirects_end(service: FakeService) -> None:
    error = _failure(service, Reply(status=301, headers={"Location": _PATH}))

    assert (error.reason, len(service.calls)) == ("redirect", 4)


def test_a_request_with_a_body_is_not_sent_elsewhere(service: FakeService) -> None:
    service.routes[_PATH] = Reply(status=307, headers={"Location": _PATH})
    config = FetchConfig(urls={"pcs": (service.url,)})
    with (
        Fetcher(config, rng=random.Random(1), sleep=time.sleep) as fetcher,
        pytest.raises(FetchFailed) as caught,
    ):
        fetcher.fetch(_asked(service.url, body=b"question", content_type="application/x"))

    assert caught.value.reason == "redirect"
    assert [(call.method, call.body) for call in service.calls] == [("POST", b"question")]


def test_proxies_of_the_environment_are_not_used(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert _fetch(service, Reply(content=b"direct")).content == b"direct"


def test_a_configured_proxy_is_used(service: FakeService) -> None:
    with FakeService({_PATH: Reply(content=b"by proxy")}) as proxy:
        answer = _fetch(service, Reply(content=b"direct"), proxy=proxy.url)

    assert answer.content == b"by proxy"
    assert not service.calls


def test_a_private_ca_is_trusted_when_it_is_configured_and_only_then(tmp_path: Path) -> None:
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    _make_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    service = FakeService({_PATH: Reply(content=b"private")})
    service._server.socket = context.wrap_socket(service._server.socket, server_side=True)
    with service:
        base = f"https://127.0.0.1:{service.port}"
        config = FetchConfig(urls={"pcs": (base,)}, attempts=1)
        with (
            Fetcher(config, rng=random.Random(1), sleep=time.sleep) as fetcher,
            pytest.raises(FetchFailed),
        ):
            fetcher.fetch(_asked(base))
        trusting = replace(config, ca_file=certificate)
        with Fetcher(trusting, rng=random.Random(1), sleep=time.sleep) as fetcher:
            assert fetcher.fetch(_asked(base)).content == b"private"


def test_a_ca_file_without_certificates(tmp_path: Path, service: FakeService) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(FetchConfigError, match=r"ca\.pem"):
        _fetch(service, ca_file=tmp_path / "ca.pem")


def test_a_closed_fetcher_opens_again(service: FakeService) -> None:
    service.routes[_PATH] = lambda call: Reply(content=call.method.encode())
    fetcher = Fetcher(
        FetchConfig(urls={"pcs": (service.url,)}), rng=random.Random(1), sleep=time.sleep
    )
    for _ in range(2):
        assert fetcher.fetch(_asked(service.url)).content == b"GET"
        fetcher.close()
    fetcher.close()


def _make_certificate(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own CA")])
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key_file.write_bytes(encoded)
