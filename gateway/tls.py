"""Which certificate does the gateway show, who signed it, and when is it replaced?

A local authority signs one server certificate. The authority's name constraints [RFC 5280 sec.
4.2.1.10] limit it to this gateway's own names, so that a client that trusts `ca.pem` trusts it for
nothing else. TLS 1.3 only.

Where clients must show a certificate too, an authority of the operator's vouches for them, and ours
for the tools of this machine, which would otherwise be locked out of their own gateway.
"""

import datetime as dt
import ipaddress
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.config_rules import is_ip
from gateway.files import locked, make_private_dir, write_atomic
from gateway.paths import Paths

_log = logging.getLogger(__name__)

CA_LIFETIME = dt.timedelta(days=3650)
LEAF_LIFETIME = dt.timedelta(days=397)  # clients on Apple platforms refuse longer ones
RENEW_BEFORE = dt.timedelta(days=90)
CLOCK_SKEW = dt.timedelta(minutes=5)
ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1")
_PUBLIC_FILE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with the private key it names."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"KeyPair(serial={self.certificate.serial_number:x}, key=<redacted>)"


def ensure_certificates(paths: Paths, hostnames: Sequence[str], *, at: dt.datetime) -> None:
    """`ca.pem` and a server certificate for `hostnames` exist and are good for 90 days or more.

    The authority is kept as long as it covers every name and outlives a new server certificate:
    clients hold a copy of it. Raises: OSError when the files cannot be read or written.
    """
    names = tuple(dict.fromkeys((*ALWAYS_NAMED, *hostnames)))
    make_private_dir(paths.tls_dir)
    with locked(paths.tls_dir / ".lock"):
        authority = _load(paths, authority=True)
        if authority is None or not _authority_serves(authority.certificate, names, at):
            if any(path.exists() for path in (paths.ca_cert, paths.ca_key, paths.server_cert)):
                _log.warning(
                    "a new certificate authority replaces the old one: clients that hold a copy "
                    "of ca.pem need the new one",
                    extra={"path": str(paths.ca_cert)},
                )
            authority = issue_authority(names, at=at)
            _save(paths, authority, authority=True)
        server = _load(paths, authority=False)
        if server is None or not _server_serves(server.certificate, authority, names, at):
            _save(paths, issue_server(authority, names, at=at), authority=False)


def ensure_client_certificate(paths: Paths, *, at: dt.datetime) -> None:
    """`tls/client.pem` exists: what this machine's tools show to a gateway that wants to see one.

    Call it after `ensure_certificates`. Raises: OSError.
    """
    with locked(paths.tls_dir / ".lock"):
        authority = _load(paths, authority=True)
        if authority is None:
            raise OSError("the local authority's certificate is gone")
        client = _load_pair(paths.client_cert, paths.client_key)
        if client is None or not _is_issued_by(client.certificate, authority, at):
            _save_pair(issue_client(authority, at=at), paths.client_cert, paths.client_key)


def server_context(paths: Paths, *, client_ca: Path | None = None) -> ssl.SSLContext:
    """The gateway's side of TLS: 1.3 and nothing older.

    With `client_ca` every client shows a certificate that one of its authorities or ours vouches
    for, and is cut otherwise. Raises: OSError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(paths.server_cert, paths.server_key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        for trusted in (client_ca, paths.ca_cert):
            context.load_verify_locations(cafile=trusted)
    return context


def issue_authority(names: Sequence[str], *, at: dt.datetime) -> KeyPair:
    """A self-signed authority that may vouch for `names` only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("Starshade local authority")
    certificate = (
        _builder(subject, subject, key.public_key(), at, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.NameConstraints(
                permitted_subtrees=[_constraint(name) for name in names], excluded_subtrees=None
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate=certificate, key=key)


def issue_server(authority: KeyPair, names: Sequence[str], *, at: dt.datetime) -> KeyPair:
    """A server certificate for `names`, signed by `authority`, with a fresh key."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _leaf(
        authority, _name("Starshade gateway"), key, ExtendedKeyUsageOID.SERVER_AUTH, at
    ).add_extension(
        x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
    )
    return KeyPair(certificate=builder.sign(authority.key, hashes.SHA256()), key=key)


def issue_client(authority: KeyPair, *, at: dt.datetime) -> KeyPair:
    """A certificate for a client, which no client takes for a server's."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _leaf(authority, _name("Starshade tools"), key, ExtendedKeyUsageOID.CLIENT_AUTH, at)
    return KeyPair(certificate=builder.sign(authority.key, hashes.SHA256()), key=key)


def _leaf(
    authority: KeyPair,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    usage: x509.ObjectIdentifier,
    at: dt.datetime,
) -> x509.CertificateBuilder:
    issuer = authority.certificate
    issuer_key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(subject, issuer.subject, key.public_key(), at, LEAF_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key_id),
            critical=False,
        )
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    at: dt.datetime,
    lifetime: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - CLOCK_SKEW)
        .not_valid_after(at + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(organization: str) -> x509.Name:
    # No common name: some verifiers would hold it against the name constraints as a host name.
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if is_ip(name) else x509.DNSName(name)


def _constraint(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_network(name)) if is_ip(name) else x509.DNSName(name)


def _authority_serves(certificate: x509.Certificate, names: Sequence[str], at: dt.datetime) -> bool:
    try:
        permitted = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return False
    covered = set(permitted.permitted_subtrees or ())
    return (
        certificate.not_valid_before_utc <= at
        and at + LEAF_LIFETIME <= certificate.not_valid_after_utc
        and covered.issuperset(_constraint(name) for name in names)
    )


def _server_serves(
    certificate: x509.Certificate, authority: KeyPair, names: Sequence[str], at: dt.datetime
) -> bool:
    try:
        shown = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    named = {_general_name(name) for name in names}
    return set(shown) == named and _is_issued_by(certificate, authority, at)


def _is_issued_by(certificate: x509.Certificate, authority: KeyPair, at: dt.datetime) -> bool:
    """By `authority`, and good for long enough."""
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return (
        certificate.not_valid_before_utc <= at
        and at + RENEW_BEFORE <= certificate.not_valid_after_utc
    )


def _load(paths: Paths, *, authority: bool) -> KeyPair | None:
    return _load_pair(*_files(paths, authority=authority))


def _load_pair(cert_path: Path, key_path: Path) -> KeyPair | None:
    """What lies on disk, or None when it is absent, unreadable as PEM or of two minds."""
    try:
        certificate = x509.load_pem_x509_certificate(cert_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    if certificate.public_key() != key.public_key():
        return None
    return KeyPair(certificate=certificate, key=key)


def _save(paths: Paths, pair: KeyPair, *, authority: bool) -> None:
    _save_pair(pair, *_files(paths, authority=authority))


def _save_pair(pair: KeyPair, cert_path: Path, key_path: Path) -> None:
    private = pair.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_atomic(key_path, private)
    public = pair.certificate.public_bytes(serialization.Encoding.PEM)
    write_atomic(cert_path, public, mode=_PUBLIC_FILE)


def _files(paths: Paths, *, authority: bool) -> tuple[Path, Path]:
    if authority:
        return paths.ca_cert, paths.ca_key
    return paths.server_cert, paths.server_key
