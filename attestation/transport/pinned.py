"""TLS that ends at the handshake unless the peer's key is one that was attested.

``ssl`` lets a context choose the classes of its sockets; these look at the key once the handshake
is done, before a byte of the application's is sent.  [docs.python.org: SSLContext.sslsocket_class]
"""

import hashlib
import hmac
import ssl
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from attestation.certificate import subject_public_key_info
from attestation.errors import MalformedEvidence
from attestation.fetch.errors import FetchConfigError

ClientCertificate = tuple[Path, Path]  # PEM files: the chain, and its key
Context = TypeVar("Context", bound=ssl.SSLContext)


class PinMismatch(ssl.SSLError):
    """The connection's TLS key is not an attested one."""


class PinnedContext(ssl.SSLContext):
    """A client's context: TLS 1.3, a trusted certificate, and a key of ``pins``."""

    pins: frozenset[bytes] = frozenset()


class _PinnedSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _require_pinned(self)


class _PinnedObject(ssl.SSLObject):
    def do_handshake(self) -> None:
        super().do_handshake()
        _require_pinned(self)


def client_context(
    ca_file: Path | None, client_certificate: ClientCertificate | None = None
) -> ssl.SSLContext:
    """Takes any key of a trusted certificate; ``ca_file`` None trusts the system's CAs.

    Raises: FetchConfigError: a file holds no certificates, or not the key of its own.
    """
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca_file, client_certificate)


def pinned_context(
    ca_file: Path | None,
    pins: Collection[bytes],
    client_certificate: ClientCertificate | None = None,
) -> PinnedContext:
    """``pins`` are SHA-256 of SubjectPublicKeyInfo; none of them means that nobody is let in.

    Raises: FetchConfigError, as ``client_context``.
    """
    context = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _PinnedSocket
    context.sslobject_class = _PinnedObject
    context.pins = frozenset(pins)
    return _loaded(context, ca_file, client_certificate)


def is_pin_mismatch(error: BaseException | None) -> bool:
    """Whether one is behind ``error``: an HTTP client raises its own from it."""
    seen = 0
    while error is not None and seen < 16:
        if isinstance(error, PinMismatch):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def _loaded(
    context: Context, ca_file: Path | None, client_certificate: ClientCertificate | None
) -> Context:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        if ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as err:
        raise FetchConfigError(f"{ca_file}: no CA certificates") from err
    if client_certificate is None:
        return context
    try:
        context.load_cert_chain(*client_certificate)
    except (OSError, ssl.SSLError) as err:
        raise FetchConfigError(f"{client_certificate[0]}: no certificate with its key") from err
    return context


def _require_pinned(connection: Any) -> None:
    """Raises: PinMismatch."""
    context, certificate = connection.context, connection.getpeercert(binary_form=True)
    try:
        spki = subject_public_key_info(certificate or b"", what="certificate")
    except MalformedEvidence as err:
        raise PinMismatch("the peer's certificate is not X.509") from err
    seen = hashlib.sha256(spki).digest()
    if not any(hmac.compare_digest(seen, pin) for pin in context.pins):
        raise PinMismatch("the peer's TLS key is not in the attested keyset")
