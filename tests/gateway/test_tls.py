"""Does the certificate we make hold up in real handshakes, and only where it should?"""

import contextlib
import datetime as dt
import shutil
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gateway import tls
from gateway.paths import Paths
from gateway.probes import client_context
from tests.support.patience import PATIENCE_S

NOW = dt.datetime.now(dt.UTC)  # noqa: TID251 - OpenSSL verifies against the real clock
DAY = dt.timedelta(days=1)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str
) -> tuple[str | None, str | None]:
    """(protocol version, ALPN) of one handshake over a socket pair; the client's error raises."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as wrapped:
                wrapped.recv(1)
        except (OSError, ssl.SSLError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as wrapped:
            return wrapped.version(), wrapped.selected_alpn_protocol()
    finally:
        ours.close()
        thread.join(PATIENCE_S)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "models.example.org"])
def test_every_name_verifies_in_a_strict_handshake_over_tls_1_3(paths: Paths, name: str) -> None:
    tls.ensure_certificates(paths, ("models.example.org",), at=NOW)
    client = client_context(paths)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert handshake(tls.server_context(paths), client, name) == ("TLSv1.3", None)


def test_a_name_that_was_not_configured_is_refused(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.server_context(paths), client_context(paths), "example.org")


def test_tls_1_2_is_refused(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    old = ssl.create_default_context(cafile=str(paths.ca_cert))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(tls.server_context(paths), old, "localhost")


def test_the_authority_cannot_vouch_for_other_names(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    authority = tls._load(paths, authority=True)
    assert authority is not None
    tls._save(paths, tls.issue_server(authority, ("bank.example",), at=NOW), authority=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        handshake(tls.server_context(paths), client_context(paths), "bank.example")


def test_private_files_are_private(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (paths.ca_key, paths.server_key)}
    assert modes == {"ca.key": 0o600, "server.key": 0o600}
    assert stat.S_IMODE(paths.tls_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(paths.state_dir.stat().st_mode) == 0o700
    assert not list(paths.state_dir.rglob(".*.pem.*"))  # no temporary file stays


def test_critical_flags_follow_rfc_5280(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    ca = x509.load_pem_x509_certificate(paths.ca_cert.read_bytes())
    leaf = x509.load_pem_x509_certificate(paths.server_cert.read_bytes())
    critical = {e.oid._name for e in ca.extensions if e.critical}
    assert critical == {"basicConstraints", "keyUsage", "nameConstraints"}
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert leaf.not_valid_after_utc <= ca.not_valid_after_utc


def test_a_second_start_changes_nothing(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    before = {p: p.read_bytes() for p in (paths.ca_cert, paths.server_cert, paths.server_key)}
    tls.ensure_certificates(paths, (), at=NOW + DAY)
    assert before == {p: p.read_bytes() for p in before}


def test_the_leaf_is_renewed_under_the_same_authority_before_it_expires(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    ca, leaf = paths.ca_cert.read_bytes(), paths.server_cert.read_bytes()
    tls.ensure_certificates(paths, (), at=NOW + tls.LEAF_LIFETIME - tls.RENEW_BEFORE + DAY)
    assert paths.ca_cert.read_bytes() == ca
    assert paths.server_cert.read_bytes() != leaf


def test_an_authority_that_would_die_before_its_leaf_is_replaced(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    ca = paths.ca_cert.read_bytes()
    tls.ensure_certificates(paths, (), at=NOW + tls.CA_LIFETIME - tls.LEAF_LIFETIME + DAY)
    assert paths.ca_cert.read_bytes() != ca


@pytest.mark.parametrize("lost", ["ca_cert", "ca_key", "tls_dir", None])
def test_a_new_authority_in_place_of_an_old_one_is_told(
    paths: Paths, lost: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    assert caplog.messages == []  # the first one replaces nothing
    if lost == "tls_dir":
        shutil.rmtree(paths.tls_dir)
    elif lost is not None:
        getattr(paths, lost).unlink()
    tls.ensure_certificates(paths, (), at=NOW)
    assert len(caplog.messages) == (lost is not None)
    assert all("clients that hold a copy" in message for message in caplog.messages)


def test_a_new_host_name_replaces_both(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    ca = paths.ca_cert.read_bytes()
    tls.ensure_certificates(paths, ("10.1.2.3",), at=NOW)
    assert paths.ca_cert.read_bytes() != ca
    handshake(tls.server_context(paths), client_context(paths), "10.1.2.3")


@pytest.mark.parametrize("damage", ["server_key", "server_cert", "ca_key", "ca_cert"])
def test_damaged_files_are_made_anew(paths: Paths, damage: str) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    getattr(paths, damage).write_bytes(b"-----BEGIN CERTIFICATE-----\nnot pem\n")
    tls.ensure_certificates(paths, (), at=NOW)
    handshake(tls.server_context(paths), client_context(paths), "localhost")


def test_a_key_pair_does_not_print_its_key(paths: Paths) -> None:
    assert "redacted" in repr(tls.issue_authority(("localhost",), at=NOW))


# -- certificates of clients -----------------------------------------------------------------


def mutual(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """What the server answers; with TLS 1.3 a client learns of its refusal on reading."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with contextlib.suppress(OSError), server.wrap_socket(theirs, server_side=True) as wrapped:
            wrapped.sendall(b"welcome")
        theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname="localhost") as wrapped:
            return wrapped.recv(7)
    finally:
        ours.close()
        thread.join(PATIENCE_S)


@pytest.fixture
def operator(tmp_path: Path) -> tuple[tls.KeyPair, Path]:
    """An authority of the operator's, and its file."""
    authority = tls.issue_authority(("clients.example",), at=NOW)
    path = tmp_path / "clients.pem"
    path.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    return authority, path


def client_with(paths: Paths, pair: tls.KeyPair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(paths.ca_cert))
    if pair is not None:
        files = paths.state_dir / "c.pem", paths.state_dir / "c.key"
        tls._save_pair(pair, *files)
        context.load_cert_chain(*files)
    return context


def test_a_client_of_the_operator_s_authority_is_let_in_and_no_other(
    paths: Paths, operator: tuple[tls.KeyPair, Path]
) -> None:
    authority, ca_file = operator
    tls.ensure_certificates(paths, (), at=NOW)
    server = tls.server_context(paths, client_ca=ca_file)
    assert mutual(server, client_with(paths, tls.issue_client(authority, at=NOW))) == b"welcome"
    stranger = tls.issue_authority(("clients.example",), at=NOW)  # the same name, another key
    expired = tls.issue_client(authority, at=NOW - 2 * tls.LEAF_LIFETIME)
    as_server = tls.issue_server(authority, ("clients.example",), at=NOW)
    for refused in (None, tls.issue_client(stranger, at=NOW), expired, as_server):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            mutual(server, client_with(paths, refused))


def test_the_tools_of_this_machine_are_let_in_too(
    paths: Paths, operator: tuple[tls.KeyPair, Path]
) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    server = tls.server_context(paths, client_ca=operator[1])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        mutual(server, client_context(paths))
    tls.ensure_client_certificate(paths, at=NOW)
    assert mutual(server, client_context(paths)) == b"welcome"
    assert stat.S_IMODE(paths.client_key.stat().st_mode) == 0o600


def test_the_tools_certificate_is_kept_until_it_ends_or_its_authority_does(paths: Paths) -> None:
    tls.ensure_certificates(paths, (), at=NOW)
    tls.ensure_client_certificate(paths, at=NOW)
    first = paths.client_cert.read_bytes()
    tls.ensure_client_certificate(paths, at=NOW + DAY)
    assert paths.client_cert.read_bytes() == first
    tls.ensure_client_certificate(paths, at=NOW + tls.LEAF_LIFETIME - tls.RENEW_BEFORE + DAY)
    second = paths.client_cert.read_bytes()
    assert second != first
    tls.ensure_certificates(paths, ("new.example",), at=NOW)
    tls.ensure_client_certificate(paths, at=NOW)
    assert paths.client_cert.read_bytes() != second
