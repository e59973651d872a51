"""Does the load generator refuse a gateway whose evidence does not cover its TLS key?"""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.fetch import complete
from attestation.fetch.complete import Completion
from attestation.fetch.errors import FetchFailed
from attestation.keyset import TlsKey, build_keyset
from attestation.model import Nonce
from attestation.policy import load_policy
from loadtest.errors import (
    GatewayNotAttested,
    GatewayUnreachable,
    LoadTestError,
    TargetRefused,
)
from loadtest.pin import AttestedTarget, attest_gateway, require_model
from loadtest.plan import LoadPlan, load_plan
from tests.loadtest.conftest import target_for

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

Answer = Callable[[Nonce], bytes]


NO_KEY = (401, b'{"error": {"code": "invalid_api_key"}}')
MODELS = {
    "Bearer key": (200, b'{"data": [{"id": "tiny"}, {"id": "small"}]}'),
    "Bearer early": (503, b'{"error": {"code": "upstream_unavailable"}}'),
    "Bearer odd": (200, b'{"data": [{}]}'),
}


@contextmanager
def _server(certificate: tuple[Path, Path], answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                status, body = MODELS.get(self.headers["authorization"], NO_KEY)
                self.send_response(status)
            else:
                query = parse_qs(urlsplit(self.path).query)
                body = answer(Nonce(bytes.fromhex(query["nonce"][0])))
                self.send_response(200 if body else 503)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _bundle(nonce: Nonce, spki_sha256: str) -> bytes:
    keyset = build_keyset(
        not_after=AT + timedelta(minutes=5),
        replica="gateway",
        mode="terminate",
        ohttp=(),
        policy_sha256="44" * 32,
        tls=(TlsKey(spki_sha256=spki_sha256, host="127.0.0.1"),),
    )
    return make_bundle(FakeTee(), nonce=nonce, keyset=keyset, at=AT).to_json()


def _attest(
    certificate: tuple[Path, Path], answer: Answer, *, policy: str = "development"
) -> AttestedTarget:
    with _server(certificate, answer) as base_url:
        return attest_gateway(
            base_url,
            ca_path=certificate[0],
            policy=load_policy(policy),
            utc_now=lambda: AT,
            collateral_folder=certificate[0].parent,
        )


def test_the_attested_key_is_pinned(certificate: tuple[Path, Path]) -> None:
    own = target_for(1, certificate[0]).spki_sha256
    attested = _attest(certificate, lambda nonce: _bundle(nonce, own))
    assert attested.target.spki_sha256 == own
    assert attested.result.simulated


@pytest.mark.parametrize(
    ("answer", "policy", "message"),
    [
        (lambda nonce, own: _bundle(nonce, "11" * 32), "development", "not in the attested"),
        (lambda nonce, own: _bundle(Nonce(b"\x01" * 32), own), "development", "nonce_mismatch"),
        (lambda nonce, own: _bundle(nonce, own), "production", "untrusted_root"),
        (lambda nonce, own: b"{}", "development", "format"),
        (lambda nonce, own: b"", "development", "HTTP 503"),
    ],
)
def test_other_evidence_is_refused(
    certificate: tuple[Path, Path],
    answer: Callable[[Nonce, str], bytes],
    policy: str,
    message: str,
) -> None:
    own = target_for(1, certificate[0]).spki_sha256
    with pytest.raises(GatewayNotAttested, match=message):
        _attest(certificate, lambda nonce: answer(nonce, own), policy=policy)


def test_collateral_that_is_lacking_is_fetched(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(_kind: str, completion: Completion) -> None:
        assert completion.endorser.fetcher is not None
        raise FetchFailed("endorsement_missing", "unreachable", "the VCEK: no answer")

    monkeypatch.setattr(complete, "complete", lacking)
    own = target_for(1, certificate[0]).spki_sha256
    with pytest.raises(GatewayNotAttested, match="the VCEK: no answer"):
        _attest(certificate, lambda nonce: _bundle(nonce, own))


def test_a_plan_keeps_what_is_shown_to_the_gateway(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    for shown in (None, certificate):
        target = replace(target_for(1, certificate[0]), client_certificate=shown)
        plan = LoadPlan(
            target=target,
            model="tiny",
            max_in_flight=1,
            drain_s=1.0,
            records_path=tmp_path / "records",
            requests=(),
        )
        plan.save(tmp_path / "plan.json")
        assert load_plan(tmp_path / "plan.json") == plan


def test_nobody_there_is_unreachable(certificate: tuple[Path, Path]) -> None:
    with pytest.raises(GatewayUnreachable, match="nobody answers at"):
        attest_gateway(
            "https://127.0.0.1:9/v1",
            ca_path=certificate[0],
            policy=load_policy("development"),
            utc_now=lambda: AT,
            collateral_folder=certificate[0].parent,
        )


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8443/v1",
        "https://127.0.0.1:99999/v1",
        "https://[::1/v1",
        "https:///v1",
        "https://user:hunter2@127.0.0.1/v1",
    ],
)
def test_other_urls_are_refused(certificate: tuple[Path, Path], url: str) -> None:
    with pytest.raises(LoadTestError, match="https URL is needed"):
        attest_gateway(
            url,
            ca_path=certificate[0],
            policy=load_policy("development"),
            utc_now=lambda: AT,
            collateral_folder=certificate[0].parent,
        )


@pytest.mark.parametrize(
    ("model", "api_key", "error", "words"),
    [
        ("tiny", "key", None, ""),
        ("tiny", "other", TargetRefused, "API key: invalid_api_key"),
        ("huge", "key", TargetRefused, "'huge' is not served, but: tiny, small"),
        ("tiny", "odd", TargetRefused, "malformed"),
        ("tiny", "early", GatewayUnreachable, "upstream_unavailable"),
    ],
)
def test_a_wrong_key_or_model_is_told_before_the_run(
    certificate: tuple[Path, Path],
    model: str,
    api_key: str,
    error: type[LoadTestError] | None,
    words: str,
) -> None:
    with _server(certificate, lambda nonce: b"") as base_url:
        target = target_for(urlsplit(base_url).port or 0, certificate[0])
        if error is None:
            require_model(target, model=model, api_key=api_key)
        else:
            with pytest.raises(error, match=words):
                require_model(target, model=model, api_key=api_key)


def test_the_question_goes_to_the_pinned_key_alone(certificate: tuple[Path, Path]) -> None:
    with _server(certificate, lambda nonce: b"") as base_url:
        port = urlsplit(base_url).port or 0
        target = target_for(port, certificate[0], pin="11" * 32)
        with pytest.raises(GatewayUnreachable):
            require_model(target, model="tiny", api_key="key")


def test_a_url_without_its_path_is_hinted_at(certificate: tuple[Path, Path]) -> None:
    with (
        _server(certificate, lambda nonce: b"") as base_url,
        pytest.raises(GatewayNotAttested, match="does the URL end in /v1"),
    ):
        attest_gateway(
            base_url.removesuffix("/v1"),
            ca_path=certificate[0],
            policy=load_policy("development"),
            utc_now=lambda: AT,
            collateral_folder=certificate[0].parent,
        )
