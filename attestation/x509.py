"""Does this exact chain end in a pinned root, and is nothing in it revoked?  [RFC 5280]

Chains are judged as given: leaf first, a known length, each certificate issued by the next. There
is no path search, and the root counts only because its fingerprint is pinned.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtensionOID, NameOID, ObjectIdentifier

from attestation import der
from attestation.anchors import Anchor, AnchorFamily, TrustAnchors
from attestation.errors import (
    BadSignature,
    EndorsementCode,
    MalformedEvidence,
    UntrustedEndorsement,
)

KeyKind = Literal["p256", "p384", "rsa"]
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

P256: frozenset[KeyKind] = frozenset({"p256"})
MIN_RSA_BITS = 3072
MAX_RSA_BITS = 8192
MAX_CERTIFICATE_BYTES = 16 * 1024
MAX_CHAIN_BYTES = 64 * 1024
MAX_CRL_BYTES = 1024 * 1024
MAX_CERTIFICATES = 8
_PEM_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END CERTIFICATE-----\s*"
)
_PEM_CRL_START = b"-----BEGIN X509 CRL-----"
_DER_SEQUENCE_START = b"\x30"
# The start of an X.509 v3 certificate up to the first octet of its serial number.
_CERTIFICATE_START = re.compile(
    rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)(?P<tbs>\x30)(?:[\x00-\x7f]|\x81.|\x82..)"
    rb"\xa0\x03\x02\x01\x02\x02(?P<length>[\x01-\x15])(?P<first>.)",
    re.DOTALL,
)
_EC_HASHES = (hashes.SHA256, hashes.SHA384)
_PSS_SALT_BYTES = 48  # RSASSA-PSS with SHA-384 throughout  [AMD 57230 sec. 3]
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
    """The parts of one parsed certificate that chains are judged by; nothing is verified yet.

    ``inner`` is for what the other fields lack, never for its serial number: see
    ``_load_certificate``.
    """

    inner: x509.Certificate
    sha256: str
    serial_number: int
    signed_bytes: bytes
    subject: x509.Name
    issuer: x509.Name
    common_name: str
    not_before: datetime
    not_after: datetime
    public_key: PublicKey
    is_ca: bool
    path_length: int | None
    signs_certificates: bool
    signs_crls: bool

    @property
    def ec_key(self) -> ec.EllipticCurvePublicKey:
        """The key when it is on a curve.  Raises: BadSignature("bad_key")."""
        if not isinstance(self.public_key, ec.EllipticCurvePublicKey):
            raise BadSignature("bad_key", f"{self.common_name}: its key is not on a curve")
        return self.public_key

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


def parse_chain(
    pem: bytes, *, what: str, key_kinds: AbstractSet[KeyKind] = P256
) -> tuple[Certificate, ...]:
    """PEM certificates and white space, nothing else; NULs at the end are a vendor's habit.

    Raises: MalformedEvidence("format"); BadSignature("bad_key"): a key of no kind in ``key_kinds``.
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
        try:
            encoded = base64.b64decode(b"".join(match[1].split()), validate=True)
        except binascii.Error as err:
            raise MalformedEvidence("format", f"{what}: not base64") from err
        certificates.append(parse_certificate(encoded, what=what, key_kinds=key_kinds))
        offset = match.end()
    return tuple(certificates)


def parse_certificate(
    data: bytes, *, what: str, key_kinds: AbstractSet[KeyKind] = P256
) -> Certificate:
    """One certificate in DER, version 3.

    Raises: MalformedEvidence("format"); BadSignature("bad_key"): a key of no kind in ``key_kinds``.
    """
    try:
        inner, serial_number, signed_bytes = _load_certificate(data, what)
        subject, issuer = inner.subject, inner.issuer
        not_before, not_after = inner.not_valid_before_utc, inner.not_valid_after_utc
        names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key = inner.public_key()
        constraints, usage = _constraints(inner), _key_usage(inner)
        common_name = str(names[0].value) if names else ""
        unknown = [e for e in inner.extensions if e.critical and e.oid not in _UNDERSTOOD]
    except _PARSE_ERRORS as err:  # the library reads each field on first use
        raise MalformedEvidence("format", f"{what}: not an X.509 certificate") from err
    if not common_name.isprintable():  # it is quoted in messages
        raise MalformedEvidence("format", f"{what}: unprintable common name")
    if unknown:
        raise MalformedEvidence("format", f"{what}: unknown critical extension")
    return Certificate(
        inner=inner,
        sha256=hashlib.sha256(data).hexdigest(),
        serial_number=serial_number,
        signed_bytes=signed_bytes,
        subject=subject,
        issuer=issuer,
        not_before=not_before,
        not_after=not_after,
        common_name=common_name,
        public_key=_require_key(key, key_kinds, what),
        is_ca=constraints is not None and constraints.ca,
        path_length=None if constraints is None else constraints.path_length,
        signs_certificates=usage is not None and usage.key_cert_sign,
        signs_crls=usage is not None and usage.crl_sign,
    )


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
        if subject.issuer != issuer.subject:  # 3
            is_elsewhere = any(subject.issuer == other.subject for other in certificates)
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
    try:
        is_from_issuer = crl.issuer == issuer.subject and issuer.signs_crls
        is_signed = _is_sound_algorithm(crl, issuer.public_key) and crl.is_signature_valid(
            issuer.public_key
        )
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
        _require_signed(subject, issuer.public_key)
    except (InvalidSignature, *_PARSE_ERRORS) as err:
        raise UntrustedEndorsement(
            "chain_signature", f"{what}: certificate {depth} is not signed by the next"
        ) from err


def _require_signed(subject: Certificate, key: PublicKey) -> None:
    """Over the bytes received, by an algorithm of ours.  Raises: InvalidSignature."""
    inner = subject.inner
    algorithm = inner.signature_hash_algorithm
    if algorithm is None or not _is_sound_algorithm(inner, key):
        raise InvalidSignature
    if isinstance(key, rsa.RSAPublicKey):
        pss = padding.PSS(mgf=padding.MGF1(algorithm), salt_length=_PSS_SALT_BYTES)
        key.verify(inner.signature, subject.signed_bytes, pss, algorithm)
    else:
        key.verify(inner.signature, subject.signed_bytes, ec.ECDSA(algorithm))


def _is_sound_algorithm(
    signed: x509.Certificate | x509.CertificateRevocationList, key: PublicKey
) -> bool:
    """The Evidence names an algorithm; only these are ever used, each with its kind of key."""
    how, algorithm = signed.signature_algorithm_parameters, signed.signature_hash_algorithm
    if not isinstance(key, rsa.RSAPublicKey):
        return isinstance(how, ec.ECDSA) and isinstance(algorithm, _EC_HASHES)
    if not isinstance(how, padding.PSS) or not isinstance(algorithm, hashes.SHA384):
        return False
    expected = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=_PSS_SALT_BYTES)
    return how == expected


def _load_certificate(data: bytes, what: str) -> tuple[x509.Certificate, int, bytes]:
    """(the certificate, its serial number, its signed bytes as received).

    AMD's VCEKs have serial number 0, at which ``cryptography`` warns and which it will refuse one
    day: it is shown a twin with serial number 1. The signature is verified over the signed bytes.
    """
    start = _CERTIFICATE_START.match(data)
    if start is None or len(data) > MAX_CERTIFICATE_BYTES:
        raise MalformedEvidence("format", f"{what}: not an X.509 v3 certificate of usual size")
    first_at = start.start("first")
    if data[first_at] & 0x80:
        raise MalformedEvidence("format", f"{what}: negative serial number")
    is_zero = (start["length"], start["first"]) == (b"\1", b"\0")
    inner = x509.load_der_x509_certificate(
        data[:first_at] + b"\1" + data[first_at + 1 :] if is_zero else data
    )
    tbs_at = start.start("tbs")
    signed_bytes = data[tbs_at : tbs_at + len(inner.tbs_certificate_bytes)]
    algorithm = der.read_all(der.read_one(data, der.SEQUENCE))[1]
    if der.read_all(der.read_one(signed_bytes, der.SEQUENCE))[2] != algorithm:
        raise MalformedEvidence("format", f"{what}: names two signature algorithms")
    return inner, 0 if is_zero else inner.serial_number, signed_bytes


def _require_key(key: object, kinds: AbstractSet[KeyKind], what: str) -> PublicKey:
    if isinstance(key, ec.EllipticCurvePublicKey):
        if "p256" in kinds and isinstance(key.curve, ec.SECP256R1):
            return key
        if "p384" in kinds and isinstance(key.curve, ec.SECP384R1):
            return key
    if (
        "rsa" in kinds
        and isinstance(key, rsa.RSAPublicKey)
        and MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS
    ):
        return key
    raise BadSignature("bad_key", f"{what}: a certificate key is not of {', '.join(sorted(kinds))}")


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
