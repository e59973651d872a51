"""Does this exact chain end in a pinned root, and is nothing in it revoked?  [RFC 5280]

Chains are judged as given: leaf first, a known length, each certificate issued by the next. There
is no path search, and the root counts only because its fingerprint is pinned.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID, ObjectIdentifier

from attestation.anchors import Anchor, AnchorFamily, TrustAnchors
from attestation.errors import BadSignature, MalformedEvidence, UntrustedEndorsement

MAX_CHAIN_BYTES = 64 * 1024
MAX_CRL_BYTES = 1024 * 1024
MAX_CERTIFICATES = 8
_PEM_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END CERTIFICATE-----\s*"
)
_PEM_CRL_START = b"-----BEGIN X509 CRL-----"
_DER_SEQUENCE_START = b"\x30"
_UNDERSTOOD = frozenset({ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE})
_PARSE_ERRORS = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The parts of one parsed certificate that chains are judged by; nothing is verified yet."""

    inner: x509.Certificate
    sha256: str
    subject: x509.Name
    issuer: x509.Name
    common_name: str
    not_before: datetime
    not_after: datetime
    public_key: ec.EllipticCurvePublicKey
    is_ca: bool
    path_length: int | None
    signs_certificates: bool
    signs_crls: bool

    def extension(self, oid: ObjectIdentifier) -> bytes | None:
        """The raw DER value of an extension that this module does not interpret."""
        for extension in self.inner.extensions:
            if extension.oid == oid and isinstance(extension.value, x509.UnrecognizedExtension):
                return extension.value.value
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedChain:
    """Made by ``verify_chain`` alone: leaf first, root pinned; dates are a separate question."""

    certificates: tuple[Certificate, ...]
    anchor: Anchor

    @property
    def leaf(self) -> Certificate:
        """The certificate the chain is about."""
        return self.certificates[0]

    @property
    def root(self) -> Certificate:
        """The pinned certificate."""
        return self.certificates[-1]

    @property
    def not_after(self) -> datetime:
        """The earliest end of any validity in the chain."""
        return min(certificate.not_after for certificate in self.certificates)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCrl:
    """Made by ``verify_crl`` alone: signed by its issuer; its dates are a separate question."""

    inner: x509.CertificateRevocationList
    what: str
    last_update: datetime
    next_update: datetime


def parse_chain(pem: bytes, *, what: str) -> tuple[Certificate, ...]:
    """PEM certificates and white space, nothing else; NULs at the end are a vendor's habit.

    Raises: MalformedEvidence("format"); BadSignature("bad_key"): a key that is not P-256.
    """
    text = pem.rstrip(b"\0").strip()
    if len(text) > MAX_CHAIN_BYTES:
        raise MalformedEvidence("format", f"{what}: {len(text)} bytes, at most {MAX_CHAIN_BYTES}")
    certificates: list[Certificate] = []
    offset = 0
    while offset < len(text):
        match = _PEM_CERTIFICATE.match(text, offset)
        if match is None or len(certificates) == MAX_CERTIFICATES:
            raise MalformedEvidence("format", f"{what}: not a short list of PEM certificates")
        certificates.append(_parse_certificate(match[1], what))
        offset = match.end()
    return tuple(certificates)


def verify_chain(
    certificates: Sequence[Certificate],
    *,
    num_certificates: int,
    family: AnchorFamily,
    anchors: TrustAnchors,
    what: str,
) -> VerifiedChain:
    """Steps: 1. length; 2. pinned root; 3. links and CA flags.

    Raises: UntrustedEndorsement: chain, untrusted_root, chain_order, chain_signature.
    """
    if len(certificates) != num_certificates:  # 1
        got = len(certificates)
        raise UntrustedEndorsement("chain", f"{what}: {got} certificates, want {num_certificates}")
    anchor = anchors.find(family, certificates[-1].sha256)  # 2
    if anchor is None:
        raise UntrustedEndorsement("untrusted_root", f"{what}: its root is not one that we pin")
    for depth, (subject, issuer) in enumerate(pairwise(certificates)):
        _require_link(subject, issuer, depth, what)  # 3
    if certificates[0].is_ca:
        raise UntrustedEndorsement("chain", f"{what}: the leaf claims to be a CA")
    return VerifiedChain(certificates=tuple(certificates), anchor=anchor)


def require_chain_current(chain: VerifiedChain, at: datetime) -> None:
    """Raises: UntrustedEndorsement("certificate_time")."""
    for certificate in chain.certificates:
        first, last = certificate.not_before, certificate.not_after
        if not first <= at <= last:
            raise UntrustedEndorsement(
                "certificate_time",
                f"{certificate.common_name} is valid {first:%Y-%m-%d} to {last:%Y-%m-%d}",
            )


def verify_crl(data: bytes, *, issuer: Certificate, what: str) -> VerifiedCrl:
    """A revocation list signed by ``issuer``, PEM or DER by its first bytes.

    Raises: MalformedEvidence("format"); UntrustedEndorsement: crl_missing, crl_issuer,
    crl_signature, crl_expired (no nextUpdate at all).
    """
    crl = _parse_crl(data, what)
    try:
        is_from_issuer = crl.issuer == issuer.subject and issuer.signs_crls
        is_signed = crl.is_signature_valid(issuer.public_key)
        last_update, next_update = crl.last_update_utc, crl.next_update_utc
    except _PARSE_ERRORS as err:
        raise MalformedEvidence("format", f"{what}: not a revocation list") from err
    if not is_from_issuer:
        raise UntrustedEndorsement("crl_issuer", f"{what}: not issued by {issuer.common_name}")
    if not is_signed:
        raise UntrustedEndorsement("crl_signature", f"{what}: signature does not hold")
    if next_update is None:
        raise UntrustedEndorsement("crl_expired", f"{what}: has no next update")
    return VerifiedCrl(inner=crl, what=what, last_update=last_update, next_update=next_update)


def require_unrevoked(crl: VerifiedCrl, certificate: Certificate) -> None:
    """Raises: UntrustedEndorsement("certificate_revoked")."""
    if crl.inner.get_revoked_certificate_by_serial_number(certificate.inner.serial_number):
        raise UntrustedEndorsement(
            "certificate_revoked", f"{certificate.common_name} is on the {crl.what}"
        )


def require_crl_current(crl: VerifiedCrl, at: datetime) -> None:
    """Raises: UntrustedEndorsement: collateral_not_yet_valid, crl_expired."""
    if at < crl.last_update:
        raise UntrustedEndorsement(
            "collateral_not_yet_valid", f"{crl.what}: starts {crl.last_update:%Y-%m-%d}"
        )
    if at >= crl.next_update:
        raise UntrustedEndorsement(
            "crl_expired", f"{crl.what}: its next update was due {crl.next_update:%Y-%m-%d}"
        )


def _require_link(subject: Certificate, issuer: Certificate, depth: int, what: str) -> None:
    if subject.issuer != issuer.subject:
        raise UntrustedEndorsement("chain_order", f"{what}: certificate {depth} names another CA")
    if not issuer.is_ca or not issuer.signs_certificates:
        raise UntrustedEndorsement("chain", f"{what}: {issuer.common_name} may not issue")
    if issuer.path_length is not None and issuer.path_length < depth:
        raise UntrustedEndorsement("chain", f"{what}: {issuer.common_name} allows no such depth")
    try:
        subject.inner.verify_directly_issued_by(issuer.inner)
    except (InvalidSignature, *_PARSE_ERRORS) as err:
        raise UntrustedEndorsement(
            "chain_signature", f"{what}: certificate {depth} is not signed by the next"
        ) from err


def _parse_certificate(encoded: bytes, what: str) -> Certificate:
    try:
        der = base64.b64decode(b"".join(encoded.split()), validate=True)
        inner = x509.load_der_x509_certificate(der)
        subject, issuer = inner.subject, inner.issuer
        not_before, not_after = inner.not_valid_before_utc, inner.not_valid_after_utc
        names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key = inner.public_key()
        constraints, usage = _constraints(inner), _key_usage(inner)
        common_name = str(names[0].value) if names else ""
        unknown = [e for e in inner.extensions if e.critical and e.oid not in _UNDERSTOOD]
    except (binascii.Error, *_PARSE_ERRORS) as err:  # the library reads each field on first use
        raise MalformedEvidence("format", f"{what}: not an X.509 certificate") from err
    if not common_name.isprintable():  # it is quoted in messages
        raise MalformedEvidence("format", f"{what}: unprintable common name")
    if unknown:
        raise MalformedEvidence("format", f"{what}: unknown critical extension")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadSignature("bad_key", f"{what}: a certificate key is not on P-256")
    return Certificate(
        inner=inner,
        sha256=hashlib.sha256(der).hexdigest(),
        subject=subject,
        issuer=issuer,
        not_before=not_before,
        not_after=not_after,
        common_name=common_name,
        public_key=key,
        is_ca=constraints is not None and constraints.ca,
        path_length=None if constraints is None else constraints.path_length,
        signs_certificates=usage is not None and usage.key_cert_sign,
        signs_crls=usage is not None and usage.crl_sign,
    )


def _constraints(certificate: x509.Certificate) -> x509.BasicConstraints | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return None


def _key_usage(certificate: x509.Certificate) -> x509.KeyUsage | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return None


def _parse_crl(data: bytes, what: str) -> x509.CertificateRevocationList:
    if not data:
        raise UntrustedEndorsement("crl_missing", f"{what}: not given")
    if len(data) > MAX_CRL_BYTES:
        raise MalformedEvidence("format", f"{what}: {len(data)} bytes, at most {MAX_CRL_BYTES}")
    try:
        if data.startswith(_PEM_CRL_START):
            crl = x509.load_pem_x509_crl(data)
        elif data.startswith(_DER_SEQUENCE_START):
            crl = x509.load_der_x509_crl(data)
        else:
            raise MalformedEvidence("format", f"{what}: neither DER nor PEM")
        has_critical = any(extension.critical for extension in crl.extensions)
    except _PARSE_ERRORS as err:
        raise MalformedEvidence("format", f"{what}: not a revocation list") from err
    if has_critical:  # a partial or indirect list would hide revocations  [RFC 5280 sec. 5.2]
        raise MalformedEvidence("format", f"{what}: critical extension, so not a plain full list")
    return crl
