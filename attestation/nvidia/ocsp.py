"""Does its CA still stand by this certificate?  One OCSP answer for one certificate.  [RFC 6960]

NVIDIA answers by a delegated responder: its certificate is in the answer, issued by the CA of the
certificate asked about, and may do nothing but sign answers. An answer lives a day.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from attestation.certificate import PARSE_ERRORS
from attestation.errors import (
    BadSignature,
    MalformedEvidence,
    StaleEvidence,
    UntrustedEndorsement,
)
from attestation.nvidia.ocsp_answer import OcspAnswer, identifier, key_bits, parse_answer
from attestation.x509 import Certificate, VerifiedChain

OcspStatus = Literal["good", "certificate_hold"]

MAX_AGE = timedelta(hours=24)  # NVIDIA's own validity; a longer one is not used to its end
NO_GRACE = timedelta(0)
MIN_NONCE_BYTES = 16  # RFC 9654 sec. 2.1 asks for 32; NVIDIA's responder echoes what it is sent
_ID_HASHES: dict[type[hashes.HashAlgorithm], str] = {
    hashes.SHA256: "sha256",
    hashes.SHA384: "sha384",
    hashes.SHA512: "sha512",
}
_SIGNATURE_HASHES = (hashes.SHA256, hashes.SHA384)
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_UNDERSTOOD = frozenset(
    {ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE, ExtensionOID.EXTENDED_KEY_USAGE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedOcsp:
    """Made here alone: the issuer's word on one certificate, current and not "revoked".

    ``certificate_hold`` occurs only where the caller allowed it, and never late. ``next_update`` is
    when the answer ends; a late one was past that and within the grace that the caller gave.
    ``not_after`` is when it is no longer what it was found to be, current or late.
    """

    status: OcspStatus
    this_update: datetime
    next_update: datetime
    not_after: datetime
    is_late: bool


def verify_ocsp(
    answer: bytes,
    *,
    subject: Certificate,
    issuer: Certificate,
    at: datetime,
    nonce: bytes | None,
    max_age: timedelta = MAX_AGE,
    grace: timedelta = NO_GRACE,
) -> VerifiedOcsp:
    """``issuer`` is trusted already; ``nonce`` is what was asked with, None when asked without one.

    Steps: 1. format; 2. the issuer's responder; 3. its signature; 4. about ``subject``; 5. nonce;
    6. status; 7. dates. A certificate on hold is refused. An answer that ended less than ``grace``
    ago is accepted as late.

    Raises: MalformedEvidence("format") and UntrustedEndorsement("crl_missing"): 1, no answer;
    UntrustedEndorsement: crl_issuer, signer_role (2), crl_signature (2, 3), crl_issuer (4, 6: of
    another certificate, or of one that the responder does not know), certificate_revoked (6),
    certificate_time (7: the responder), collateral_not_yet_valid, crl_expired (7);
    BadSignature("bad_key") (2); StaleEvidence("nonce_mismatch") (5).
    """
    return _verify(
        answer,
        subject,
        issuer,
        at=at,
        nonce=nonce,
        max_age=max_age,
        grace=grace,
        allow_hold=False,
    )


def verify_chain_ocsp(
    chain: VerifiedChain,
    answers: Sequence[bytes],
    *,
    at: datetime,
    nonces: Sequence[bytes | None],
    max_age: timedelta = MAX_AGE,
    grace: timedelta = NO_GRACE,
    allow_rim_hold: bool = False,
) -> tuple[VerifiedOcsp, ...]:
    """One answer each, leaf first, for all certificates that NVIDIA's responder serves.

    Those are all but the root and, in a device's chain, but the leaf. ``allow_rim_hold`` accepts
    the hold of a reference value's signer; a device's certificate on hold is always refused.

    Raises: as ``verify_ocsp``; UntrustedEndorsement("crl_missing"): not one answer each.
    """
    is_rim = chain.anchor.family == "nvidia-rim"
    first = 0 if is_rim else 1
    asked = tuple(range(first, len(chain.certificates) - 1))
    if not len(asked) == len(answers) == len(nonces):
        raise UntrustedEndorsement(
            "crl_missing", f"OCSP: {len(answers)} answers, want {len(asked)}"
        )
    return tuple(
        _verify(
            answer,
            chain.certificates[i],
            chain.certificates[i + 1],
            at=at,
            nonce=nonce,
            max_age=max_age,
            grace=grace,
            allow_hold=is_rim and allow_rim_hold,
        )
        for i, answer, nonce in zip(asked, answers, nonces, strict=True)
    )


def _verify(
    data: bytes,
    subject: Certificate,
    issuer: Certificate,
    *,
    at: datetime,
    nonce: bytes | None,
    max_age: timedelta,
    grace: timedelta,
    allow_hold: bool,
) -> VerifiedOcsp:
    answer = parse_answer(data)  # 1
    key = _require_responder(answer, issuer)  # 2
    try:
        key.verify(answer.signature, answer.signed_bytes, ec.ECDSA(answer.signature_hash))  # 3
    except InvalidSignature as err:
        raise UntrustedEndorsement("crl_signature", "OCSP: signature does not hold") from err
    _require_about(answer, subject, issuer)  # 4
    _require_nonce(answer, nonce)  # 5
    status = _require_status(answer, subject, allow_hold=allow_hold)  # 6
    allowed = grace if status == "good" else NO_GRACE
    end = _require_current(answer, at=at, max_age=max_age, grace=allowed)  # 7
    last = answer.responder.not_valid_after_utc
    return VerifiedOcsp(
        status=status,
        this_update=answer.this_update,
        next_update=min(end, last),
        not_after=min(end if at < end else end + allowed, last),
        is_late=at >= end,
    )


def _require_responder(answer: OcspAnswer, issuer: Certificate) -> ec.EllipticCurvePublicKey:
    """The key of a responder that ``issuer`` appointed and that this answer names."""
    responder = answer.responder
    try:
        key, names_issuer = responder.public_key(), responder.issuer == issuer.subject
        is_named = _is_named(answer)
        is_in_role = _is_in_role(responder)
        used = (answer.signature_hash, responder.signature_hash_algorithm)
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", "OCSP: the responder's certificate is no X.509") from err
    if not names_issuer or not is_named:
        raise UntrustedEndorsement("crl_issuer", "OCSP: not by a responder of the issuer")
    if not is_in_role or not issuer.signs_certificates:
        raise UntrustedEndorsement("signer_role", "OCSP: the signer may not sign OCSP answers")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _CURVES):
        raise BadSignature("bad_key", "OCSP: the responder's key is not on P-256 or P-384")
    if not all(isinstance(algorithm, _SIGNATURE_HASHES) for algorithm in used):
        raise UntrustedEndorsement("crl_signature", "OCSP: signed with another hash than SHA-2")
    try:
        responder.verify_directly_issued_by(issuer.inner)
    except (InvalidSignature, *PARSE_ERRORS) as err:
        raise UntrustedEndorsement(
            "crl_signature", "OCSP: the responder's certificate is not signed by the issuer"
        ) from err
    return key


def _is_named(answer: OcspAnswer) -> bool:
    """ResponderID is a name or the SHA-1 of a key: an identifier, not a matter of trust."""
    if answer.responder_name is not None:
        return answer.responder_name == answer.responder.subject
    return answer.responder_key_hash == identifier("sha1", key_bits(answer.responder))


def _is_in_role(responder: x509.Certificate) -> bool:
    """Signs answers, issues nothing, and asks for nothing that we do not understand."""
    extensions = {extension.oid: extension for extension in responder.extensions}
    if any(e.critical and e.oid not in _UNDERSTOOD for e in extensions.values()):
        return False
    constraints, usage, purposes = (
        extensions[oid].value if oid in extensions else None
        for oid in (
            ExtensionOID.BASIC_CONSTRAINTS,
            ExtensionOID.KEY_USAGE,
            ExtensionOID.EXTENDED_KEY_USAGE,
        )
    )
    return (
        isinstance(purposes, x509.ExtendedKeyUsage)
        and ExtendedKeyUsageOID.OCSP_SIGNING in purposes
        and isinstance(usage, x509.KeyUsage)
        and usage.digital_signature
        and not (isinstance(constraints, x509.BasicConstraints) and constraints.ca)
    )


def _require_about(answer: OcspAnswer, subject: Certificate, issuer: Certificate) -> None:
    name = _ID_HASHES.get(type(answer.id_hash))
    if name is None:
        raise MalformedEvidence("format", "OCSP: certificate id by another hash than SHA-2")
    want = identifier(name, issuer.subject.public_bytes()), identifier(name, key_bits(issuer.inner))
    if (answer.issuer_name_hash, answer.issuer_key_hash) != want:
        raise UntrustedEndorsement("crl_issuer", "OCSP: about a certificate of another issuer")
    if answer.serial_number != subject.serial_number or subject.issuer != issuer.subject:
        raise UntrustedEndorsement("crl_issuer", f"OCSP: not about {subject.common_name}")


def _require_nonce(answer: OcspAnswer, nonce: bytes | None) -> None:
    if nonce is None:
        return
    if len(nonce) < MIN_NONCE_BYTES:
        raise MalformedEvidence("nonce_length", f"OCSP: nonce of {len(nonce)} bytes")
    if answer.nonce is None or not hmac.compare_digest(answer.nonce, nonce):
        raise StaleEvidence("nonce_mismatch", "OCSP: the answer is not to the nonce asked with")


def _require_status(answer: OcspAnswer, subject: Certificate, *, allow_hold: bool) -> OcspStatus:
    name = subject.common_name
    if answer.status is ocsp.OCSPCertStatus.GOOD:
        return "good"
    if answer.status is ocsp.OCSPCertStatus.UNKNOWN:  # it does not serve the issuer  [sec. 2.2]
        raise UntrustedEndorsement("crl_issuer", f"OCSP: the responder does not know {name}")
    is_hold = answer.reason is x509.ReasonFlags.certificate_hold
    if is_hold and allow_hold:
        return "certificate_hold"
    raise UntrustedEndorsement(
        "certificate_revoked", f"OCSP: {name} is {'on hold' if is_hold else 'revoked'}"
    )


def _require_current(
    answer: OcspAnswer, *, at: datetime, max_age: timedelta, grace: timedelta
) -> datetime:
    """When the answer ends, not ``grace`` ago: its next update, or ``max_age`` after it was true.

    Its signer's certificate has no grace.
    """
    responder = answer.responder
    if not responder.not_valid_before_utc <= at <= responder.not_valid_after_utc:
        raise UntrustedEndorsement("certificate_time", "OCSP: the responder is not current")
    if at < max(answer.this_update, answer.produced_at):
        raise UntrustedEndorsement(
            "collateral_not_yet_valid", f"OCSP: starts {answer.this_update:%Y-%m-%d %H:%M}"
        )
    if answer.next_update is None:
        raise UntrustedEndorsement("crl_expired", "OCSP: has no next update")
    end = min(answer.next_update, answer.this_update + max_age)
    if at >= end + grace:
        raise UntrustedEndorsement("crl_expired", f"OCSP: ended {end:%Y-%m-%d %H:%M}")
    return end
