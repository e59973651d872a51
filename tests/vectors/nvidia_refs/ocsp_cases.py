"""OCSP answers under the test root: good ones, and one fault each with its code."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.vectors.nvidia_refs.pki import AT, DAY, L2, L3, RESPONDER, Issue, Ocsp

RFC6960 = "RFC 6960 sec. "
NONCE = bytes(range(32))
_GOOD = Ocsp()
_REVOKED = replace(_GOOD, status=ocsp.OCSPCertStatus.REVOKED)
_RESPONDER = _GOOD.responder


@dataclass(frozen=True, kw_only=True)
class OcspCase:
    """``code`` None is a good answer, late where ``is_late``; ``nonce`` is what was asked with."""

    change: str
    source: str
    code: str | None
    make: Callable[[], bytes]
    nonce: bytes | None = None
    grace_s: int = 0
    is_late: bool = False


def _case(
    change: str, section: str, code: str | None, answer: Ocsp, nonce: bytes | None = None
) -> OcspCase:
    return OcspCase(
        change=change, source=RFC6960 + section, code=code, make=answer.make, nonce=nonce
    )


def _ended(change: str, code: str | None, answer: Ocsp, *, grace_s: int = 3600) -> OcspCase:
    """An answer that is late by what an AppraisalPolicy may or may not let pass."""
    return OcspCase(
        change=f"with grace, {change}",
        source=RFC6960 + "4.2.2.1",
        code=code,
        make=answer.make,
        grace_s=grace_s,
        is_late=code is None and (answer.next_update or AT) <= AT,
    )


def _by(**changes: object) -> Ocsp:
    """By another responder."""
    return replace(_GOOD, responder=replace(_RESPONDER, **changes))  # type: ignore[arg-type]


def _flip(offset_from_end: int) -> bytes:
    answer = bytearray(_GOOD.make())
    answer[-offset_from_end] ^= 1
    return bytes(answer)


def _late(by: timedelta) -> Ocsp:
    """Ended ``by`` before AT, after an hour of life."""
    return replace(_GOOD, this_update=AT - by - _HOUR, next_update=AT - by)


_HOUR, _SECOND = timedelta(hours=1), timedelta(seconds=1)
_LATE = _late(timedelta(minutes=30))
_OWN = Issue(
    subject=RESPONDER, issuer=L3, key_name="mine", purposes=(ExtendedKeyUsageOID.OCSP_SIGNING,)
)

CASES = (
    _case("good", "4.2.1", None, _GOOD),
    _case("good with the nonce", "4.4.1", None, replace(_GOOD, nonce=NONCE), NONCE),
    _case("good with a nonce not asked for", "4.4.1", None, replace(_GOOD, nonce=NONCE)),
    _case("SHA-256 certificate id", "4.1.1", None, replace(_GOOD, id_hash=hashes.SHA256())),
    _case(
        "responder by name",
        "4.2.1",
        None,
        replace(_GOOD, encoding=ocsp.OCSPResponderEncoding.NAME),
    ),
    OcspCase(change="empty", source=RFC6960 + "4.2.1", code="crl_missing", make=lambda: b""),
    OcspCase(
        change="try later",
        source=RFC6960 + "4.2.1",
        code="crl_missing",
        make=lambda: bytes.fromhex("30030a0103"),
    ),
    OcspCase(change="no DER", source=RFC6960 + "4.2.1", code="format", make=lambda: b"\x30\x03abc"),
    OcspCase(
        change="byte after the end",
        source=RFC6960 + "4.2.1",
        code="format",
        make=lambda: _GOOD.make() + b"\0",
    ),
    OcspCase(
        change="cut short",
        source=RFC6960 + "4.2.1",
        code="format",
        make=lambda: _GOOD.make()[:-1],
    ),
    OcspCase(
        change="too long",
        source=RFC6960 + "4.2.1",
        code="format",
        make=lambda: bytes(20_000),
    ),
    OcspCase(
        change="responder's certificate flipped",
        source=RFC6960 + "4.2.2.2",
        code="crl_signature",
        make=lambda: _flip(1),
    ),
    _case(
        "no responder's certificate", "4.2.2.2", "crl_issuer", replace(_GOOD, with_responder=False)
    ),
    _case(
        "signed by the issuer itself",
        "4.2.2.2",
        "crl_issuer",
        replace(_GOOD, with_responder=False, signing_key=L3),
    ),
    _case("signed by another key", "4.2.1", "crl_signature", replace(_GOOD, signing_key="mine")),
    _case("responder of another CA", "4.2.2.2", "crl_issuer", _by(issuer=L2)),
    _case(
        "responder that calls itself the CA's",
        "4.2.2.2",
        "crl_signature",
        replace(_GOOD, responder=_OWN, signing_key=RESPONDER),
    ),
    _case("responder without the purpose", "4.2.2.2", "signer_role", _by(purposes=())),
    _case(
        "responder for another purpose",
        "4.2.2.2",
        "signer_role",
        _by(purposes=(ExtendedKeyUsageOID.CLIENT_AUTH,)),
    ),
    _case(
        "responder for any purpose",
        "4.2.2.2",
        "signer_role",
        _by(purposes=(ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)),
    ),
    _case("responder is a CA", "4.2.2.2", "signer_role", _by(path_length=0)),
    _case(
        "responder with an unknown critical extension",
        "4.2.2.2",
        "signer_role",
        _by(extra=x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")),
    ),
    _case(
        "names another responder by key",
        "4.2.2.3",
        "crl_issuer",
        replace(_GOOD, named=Issue(subject="Other", issuer=L3)),
    ),
    _case(
        "names another responder by name",
        "4.2.2.3",
        "crl_issuer",
        replace(
            _GOOD,
            named=Issue(subject="Other", issuer=L3),
            encoding=ocsp.OCSPResponderEncoding.NAME,
        ),
    ),
    _case(
        "responder's certificate signed with SHA-512",
        "4.2.2.2",
        "crl_signature",
        _by(signed_with=hashes.SHA512()),
    ),
    _case(
        "unknown critical extension",
        "4.4",
        "format",
        replace(_GOOD, extra=x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")),
    ),
    _case("responder expired", "4.2.2.2", "certificate_time", _by(not_after=AT - DAY)),
    _case("responder of the future", "4.2.2.2", "certificate_time", _by(not_before=AT + DAY)),
    _case("SHA-1 certificate id", "4.1.1", "format", replace(_GOOD, id_hash=hashes.SHA1())),  # noqa: S303
    _case("of another issuer", "4.1.1", "crl_issuer", replace(_GOOD, id_issuer="l2")),
    _case("of another certificate", "4.1.1", "crl_issuer", replace(_GOOD, subject="other")),
    _case("nonce missing", "4.4.1", "nonce_mismatch", _GOOD, NONCE),
    _case("another nonce", "4.4.1", "nonce_mismatch", replace(_GOOD, nonce=NONCE[::-1]), NONCE),
    _case("nonce cut", "4.4.1", "nonce_mismatch", replace(_GOOD, nonce=NONCE[:31]), NONCE),
    _case("nonce too short to ask with", "4.4.1", "nonce_length", replace(_GOOD, nonce=b"1"), b"1"),
    _case("empty nonce asked with", "4.4.1", "nonce_length", _GOOD, b""),
    _case("revoked", "2.2", "certificate_revoked", _REVOKED),
    _case(
        "key compromised",
        "2.2",
        "certificate_revoked",
        replace(_REVOKED, reason=x509.ReasonFlags.key_compromise),
    ),
    _case(
        "on hold",
        "2.2",
        "certificate_revoked",
        replace(_REVOKED, reason=x509.ReasonFlags.certificate_hold),
    ),
    _case("unknown", "2.2", "crl_issuer", replace(_GOOD, status=ocsp.OCSPCertStatus.UNKNOWN)),
    _case("stale", "4.2.2.1", "crl_expired", replace(_GOOD, next_update=AT)),
    _case("no next update", "4.2.2.1", "crl_expired", replace(_GOOD, next_update=None)),
    _case(
        "of the future",
        "4.2.2.1",
        "collateral_not_yet_valid",
        replace(_GOOD, this_update=AT + timedelta(seconds=1)),
    ),
    _case(
        "older than a day",
        "4.2.2.1",
        "crl_expired",
        replace(_GOOD, this_update=AT - DAY, next_update=AT + 30 * DAY),
    ),
    _ended("current", None, _GOOD),
    _ended("just ended", None, replace(_GOOD, next_update=AT)),
    _ended("a second short of too late", None, _late(_HOUR - _SECOND)),
    _ended("too late", "crl_expired", _late(_HOUR)),
    _ended("days late", "crl_expired", _late(2 * DAY)),
    _ended("days late within its grace", None, _late(2 * DAY), grace_s=3 * 24 * 3600),
    _ended("no next update", "crl_expired", replace(_GOOD, next_update=None)),
    _ended(
        "past a day, which is all that counts",
        "crl_expired",
        replace(_GOOD, this_update=AT - DAY - _HOUR, next_update=AT + 30 * DAY),
    ),
    _ended("revoked", "certificate_revoked", replace(_LATE, status=ocsp.OCSPCertStatus.REVOKED)),
    _ended(
        "on hold",
        "certificate_revoked",
        replace(
            _LATE,
            status=ocsp.OCSPCertStatus.REVOKED,
            reason=x509.ReasonFlags.certificate_hold,
        ),
    ),
    _ended("unknown", "crl_issuer", replace(_LATE, status=ocsp.OCSPCertStatus.UNKNOWN)),
    _ended(
        "responder expired",
        "certificate_time",
        replace(_LATE, responder=replace(_RESPONDER, not_after=AT - _SECOND)),
    ),
    _ended("signed by another key", "crl_signature", replace(_LATE, signing_key="mine")),
)
