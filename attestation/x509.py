"""Does this exact chain end in a pinned root, and is nothing in it revoked?  [RFC 5280]

Chains are judged as given: leaf first, a known length, each certificate issued by the next. There
is no path search, and the root counts only because its fingerprint is pinned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from attestation.anchors import Anchor, AnchorFamily, TrustAnchors
from attestation.certificate import (
    PARSE_ERRORS,
    Certificate,
    KeyKind,
    PublicKey,
    parse_certificate,
    parse_chain,
)
from attestation.der import INTEGER, content_start, element_end
from attestation.errors import EndorsementCode, MalformedEvidence, UntrustedEndorsement

__all__ = [
    "Certificate",
    "KeyKind",
    "PublicKey",
    "VerifiedChain",
    "VerifiedCrl",
    "parse_certificate",
    "parse_chain",
    "require_chain_current",
    "require_crl_current",
    "require_unrevoked",
    "verify_chain",
    "verify_crl",
]

MAX_CRL_BYTES = 1024 * 1024
_PEM_CRL_START = b"-----BEGIN X509 CRL-----"
_DER_SEQUENCE_START = b"\x30"
_PARTIAL_CRL = (ExtensionOID.DELTA_CRL_INDICATOR, ExtensionOID.ISSUING_DISTRIBUTION_POINT)
_EC_ALGORITHMS: dict[bytes, hashes.HashAlgorithm] = {  # ecdsa-with-SHA256, -SHA384  [RFC 5758]
    bytes.fromhex("300a06082a8648ce3d040302"): hashes.SHA256(),
    bytes.fromhex("300a06082a8648ce3d040303"): hashes.SHA384(),
}
_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)  # [AMD 57230 sec. 3]


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


def verify_chain(
    certificates: Sequence[Certificate],
    *,
    num_certificates: int,
    family: AnchorFamily,
    anchors: TrustAnchors,
    what: str,
    foreign_issuer: EndorsementCode = "chain_order",
) -> VerifiedChain:
    """Steps: 1. length; 2. pinned root; 3. links and CA flags.

    ``foreign_issuer`` is the code of a certificate that names a CA outside the chain: vendors'
    test data disagree on whether that is an order or a signature.

    Raises: UntrustedEndorsement: chain, untrusted_root, chain_order, chain_signature.
    """
    if len(certificates) != num_certificates:  # 1
        got = len(certificates)
        raise UntrustedEndorsement("chain", f"{what}: {got} certificates, want {num_certificates}")
    anchor = anchors.find(family, certificates[-1].sha256)  # 2
    if anchor is None:
        if any(anchors.find(family, certificate.sha256) for certificate in certificates):
            raise UntrustedEndorsement("chain_order", f"{what}: the pinned root is not at its end")
        raise UntrustedEndorsement("untrusted_root", f"{what}: its root is not one that we pin")
    for depth, (subject, issuer) in enumerate(pairwise(certificates)):
        if not subject.is_issued_in_name_of(issuer):  # 3
            is_elsewhere = any(map(subject.is_issued_in_name_of, certificates))
            raise UntrustedEndorsement(
                "chain_order" if is_elsewhere else foreign_issuer,
                f"{what}: certificate {depth} names another CA",
            )
        _require_link(subject, issuer, depth, what)
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
    is_der = data.startswith(_DER_SEQUENCE_START)
    parts = _crl_parts(data if is_der else crl.public_bytes(Encoding.DER))
    try:
        is_from_issuer = issuer.signs_crls and (
            parts.issuer_der == issuer.subject_der or crl.issuer == issuer.subject
        )
        is_signed = _is_signed_crl(crl, parts, issuer.public_key)
        last_update, next_update = crl.last_update_utc, crl.next_update_utc
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", f"{what}: not a revocation list") from err
    if not is_from_issuer:
        raise UntrustedEndorsement("crl_issuer", f"{what}: not issued by {issuer.common_name}")
    if not is_signed:
        raise UntrustedEndorsement("crl_signature", f"{what}: signature does not hold")
    if next_update is None:
        raise UntrustedEndorsement("crl_expired", f"{what}: has no next update")
    return VerifiedCrl(inner=crl, what=what, last_update=last_update, next_update=next_update)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CrlParts:
    """Bytes of a revocation list as they were received."""

    signed_bytes: bytes
    signature_algorithm_der: bytes
    issuer_der: bytes


def _crl_parts(der: bytes) -> _CrlParts:
    """Of DER that the library has accepted as a list that names one algorithm.

    [RFC 5280 sec. 5.1]
    """
    list_at = content_start(der, 0)
    algorithm_at = content_start(der, list_at)
    if der[algorithm_at] == INTEGER:  # the version, absent in version 1
        algorithm_at = element_end(der, algorithm_at)
    issuer_at = element_end(der, algorithm_at)
    return _CrlParts(
        signed_bytes=der[list_at : element_end(der, list_at)],
        signature_algorithm_der=der[algorithm_at:issuer_at],
        issuer_der=der[issuer_at : element_end(der, issuer_at)],
    )


def require_unrevoked(crl: VerifiedCrl, certificate: Certificate) -> None:
    """Raises: UntrustedEndorsement("certificate_revoked")."""
    if crl.inner.get_revoked_certificate_by_serial_number(certificate.serial_number):
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
    if not issuer.is_ca or not issuer.signs_certificates:
        raise UntrustedEndorsement("chain", f"{what}: {issuer.common_name} may not issue")
    if issuer.path_length is not None and issuer.path_length < depth:
        raise UntrustedEndorsement("chain", f"{what}: {issuer.common_name} allows no such depth")
    try:
        _require_signed(subject.inner, subject, issuer.public_key)
    except (InvalidSignature, *PARSE_ERRORS) as err:
        raise UntrustedEndorsement(
            "chain_signature", f"{what}: certificate {depth} is not signed by the next"
        ) from err


def _require_signed(
    signed: x509.Certificate | x509.CertificateRevocationList,
    parts: Certificate | _CrlParts,
    key: PublicKey,
) -> None:
    """Over the bytes received, by an algorithm of ours.  Raises: InvalidSignature."""
    if isinstance(key, rsa.RSAPublicKey):
        algorithm = signed.signature_hash_algorithm
        if signed.signature_algorithm_parameters != _PSS or not isinstance(
            algorithm, hashes.SHA384
        ):
            raise InvalidSignature
        key.verify(signed.signature, parts.signed_bytes, _PSS, algorithm)
    else:
        named = _EC_ALGORITHMS.get(parts.signature_algorithm_der)
        if named is None:
            raise InvalidSignature
        key.verify(signed.signature, parts.signed_bytes, ec.ECDSA(named))


def _is_signed_crl(crl: x509.CertificateRevocationList, parts: _CrlParts, key: PublicKey) -> bool:
    try:
        _require_signed(crl, parts, key)
    except InvalidSignature:
        return False
    return True


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
        is_plain = not any(e.critical or e.oid in _PARTIAL_CRL for e in crl.extensions)
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", f"{what}: not a revocation list") from err
    if not is_plain:  # a partial or indirect list would hide revocations  [RFC 5280 sec. 5.2]
        raise MalformedEvidence("format", f"{what}: its extensions say it is no plain full list")
    return crl
