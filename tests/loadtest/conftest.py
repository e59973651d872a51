"""A TLS identity of our own for the servers that the load generator measures."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from loadtest.client import Target, spki_sha256
from tests.support.tls import self_signed


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""
    return self_signed(tmp_path_factory.mktemp("tls"))


def target_for(port: int, certificate: Path, *, pin: str | None = None) -> Target:
    """A target that pins the certificate's own key, or the given one."""
    der = x509.load_pem_x509_certificate(certificate.read_bytes()).public_bytes(
        serialization.Encoding.DER
    )
    return Target(
        host="127.0.0.1",
        port=port,
        path_prefix="/v1",
        ca_path=certificate,
        spki_sha256=pin or spki_sha256(der),
    )
