"""Evidence by URL: one bounded GET over TLS 1.3, and the key of that very connection."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attestation.errors import EvidenceUnavailable
from attestation.fetch.errors import FetchConfigError
from attestation.model import MAX_BUNDLE_BYTES
from attestation.transport import Delivery, EvidenceUrl, fetch_evidence, parse_evidence_url
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.samples import NONCE
from tests.support.tls import key_sha256, self_signed, server_context

_PATH = "/v1/attestation"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def service(certificate: tuple[Path, Path]) -> Iterator[FakeService]:
    with FakeService(tls=server_context(certificate)) as running:
        yield running


def _fetch(
    service: FakeService, certificate: tuple[Path, Path], *replies: Reply, **options: Any
) -> Delivery:
    service.routes[_PATH] = list(replies)
    source = parse_evidence_url(f"{service.url}/v1")
    return fetch_evidence(source, **{"nonce": NONCE, "ca_file": certificate[0], **options})


def test_a_delivery_is_the_bytes_and_the_key_that_brought_them(
    service: FakeService, certificate: tuple[Path, Path]
) -> None:
    delivery = _fetch(service, certificate, Reply(content=b'{"a":1}'))

    assert delivery.evidence == b'{"a":1}'
    assert delivery.tls_key_sha256 == key_sha256(certificate[0])
    (call,) = service.calls
    assert (call.method, dict(call.params)) == ("GET", {"nonce": NONCE.hex()})
    assert "authorization" not in call.headers


def test_a_workers_evidence_is_asked_for_by_its_id(
    service: FakeService, certificate: tuple[Path, Path]
) -> None:
    _fetch(service, certificate, Reply(content=b"{}"), node="a b&nonce=1")

    assert service.calls[0].params == {"nonce": NONCE.hex(), "node": "a b&nonce=1"}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(status=404, content=b'{"error":{"code":"node_not_found"}}'), "404 node_not_found"),
        (Reply(status=503, content=b'{"code":"tee_unavailable"}'), "503 tee_unavailable"),
        (Reply(status=500, content=b'{"code":"\\u001b[2J"}'), "HTTP 500$"),
        (Reply(status=500, content=b'{"code":7}'), "HTTP 500$"),
        (Reply(status=500, content=b"[]"), "HTTP 500$"),
        (Reply(status=500, content=b'{"error":[]}'), "HTTP 500$"),
        (Reply(status=500, content=b"[" * 70_000), "HTTP 500$"),
        (Reply(status=302, headers={"location": "https://127.0.0.1/x"}), "HTTP 302$"),
        (Reply(status=204), "HTTP 204$"),
        (Reply(content=bytes(MAX_BUNDLE_BYTES + 1)), f"more than {MAX_BUNDLE_BYTES} bytes"),
        (Reply(content=b"x", headers={"content-encoding": "gzip"}), "an encoding"),
    ],
)
def test_other_answers_are_none(
    service: FakeService, certificate: tuple[Path, Path], reply: Reply, words: str
) -> None:
    with pytest.raises(EvidenceUnavailable, match=words) as caught:
        _fetch(service, certificate, reply)

    assert caught.value.reason == "no_evidence"
    assert (caught.value.code, len(service.calls)) == ("evidence_unavailable", 1)


def test_the_longest_bundle_is_read(service: FakeService, certificate: tuple[Path, Path]) -> None:
    delivery = _fetch(service, certificate, Reply(content=bytes(MAX_BUNDLE_BYTES)))

    assert len(delivery.evidence) == MAX_BUNDLE_BYTES


def test_another_path_than_the_gateways_is_hinted_at(
    service: FakeService, certificate: tuple[Path, Path]
) -> None:
    source = parse_evidence_url(service.url)

    with pytest.raises(EvidenceUnavailable, match="HTTP 404; does the URL end in /v1"):
        fetch_evidence(source, nonce=NONCE, ca_file=certificate[0])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(content=bytes(200), drip_s=0.05),
        Reply(head_drip_s=0.05),
        Reply(content=b"x", cut=True),
    ],
)
def test_time_is_bounded_whatever_trickles_in(
    service: FakeService, certificate: tuple[Path, Path], reply: Reply
) -> None:
    started = time.monotonic()

    with pytest.raises(EvidenceUnavailable) as caught:
        _fetch(service, certificate, reply, timeout_s=0.5)

    assert time.monotonic() - started < 5
    assert caught.value.reason == "no_answer"


def test_an_older_tls_is_no_answer(certificate: tuple[Path, Path]) -> None:
    context = server_context(certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    with FakeService(tls=context) as old, pytest.raises(EvidenceUnavailable) as caught:
        _fetch(old, certificate, Reply(content=b"{}"))

    assert caught.value.reason == "no_answer"
    assert old.calls == []


@pytest.mark.parametrize("has_ca_file", [True, False])
def test_a_certificate_of_nobody_we_trust_is_no_answer(
    service: FakeService, certificate: tuple[Path, Path], tmp_path: Path, has_ca_file: bool
) -> None:
    ca_file = self_signed(tmp_path)[0] if has_ca_file else None

    with pytest.raises(EvidenceUnavailable, match=r"not trusted.*CA file"):
        _fetch(service, certificate, Reply(content=b"{}"), ca_file=ca_file)

    assert service.calls == []


def test_the_name_in_the_certificate_counts(
    service: FakeService, certificate: tuple[Path, Path]
) -> None:
    source = EvidenceUrl(host="localhost", port=service.port, path_prefix="/v1")

    with pytest.raises(EvidenceUnavailable, match="not trusted"):
        fetch_evidence(source, nonce=NONCE, ca_file=certificate[0])


def test_nobody_there(certificate: tuple[Path, Path]) -> None:
    source = parse_evidence_url("https://[::1]:9/v1")

    with pytest.raises(EvidenceUnavailable, match=r"nobody answers at https://\[::1\]:9 \(conn"):
        fetch_evidence(source, nonce=NONCE, ca_file=certificate[0])


def test_a_file_without_certificates_is_told(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    for name in ("none", "junk"):
        with pytest.raises(FetchConfigError, match="no CA certificates"):
            _fetch(service, (tmp_path / name, tmp_path), Reply(content=b"{}"))


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix"),
    [
        ("https://127.0.0.1:8443/v1", "127.0.0.1", 8443, "/v1"),
        ("https://gateway.example", "gateway.example", 443, ""),
        ("HTTPS://gateway.example/v1/", "gateway.example", 443, "/v1"),
        ("https://[::1]:1/a/b", "::1", 1, "/a/b"),
    ],
)
def test_addresses(url: str, host: str, port: int, prefix: str) -> None:
    assert parse_evidence_url(url) == EvidenceUrl(host=host, port=port, path_prefix=prefix)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gateway.example",
        "http://127.0.0.1:8443/v1",
        "ftp://127.0.0.1/v1",
        "https://127.0.0.1:99999/v1",
        "https://127.0.0.1:0/v1",
        "https://[::1/v1",
        "https:///v1",
        "https://user:hunter2@127.0.0.1/v1",
        "https://@127.0.0.1/v1",
        "https://127.0.0.1/v1?nonce=1",
        "https://127.0.0.1/v1#x",
        "https://127.0.0.1/v1\n",
        "https://127.0.0.1/a b",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="https URL is needed") as caught:
        parse_evidence_url(url)
    assert "hunter2" not in str(caught.value)
