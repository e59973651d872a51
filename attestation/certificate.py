"""What does this certificate say, and in which bytes?  [RFC 5280]

Parsing only: nothing is verified, and the caller names the kinds of key that it takes.
"""

import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID, ObjectIdentifier

from attestation.der import content_start, element_end, element_ends
from attestation.errors import BadSignature, MalformedEvidence

KeyKind = Literal["p256", "p384", "rsa"]
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

P256: frozenset[KeyKind] = frozenset({"p256"})
KEY_KINDS: frozenset[KeyKind] = frozenset(get_args(KeyKind))
MIN_RSA_BITS = 3072
MAX_RSA_BITS = 8192
MAX_CERTIFICATE_BYTES = 16 * 1024
MAX_CHAIN_BYTES = 64 * 1024
MAX_CERTIFICATES = 8
PARSE_ERRORS = (  # what the library raises at bytes that it cannot read
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
_PEM_RULE, _PEM_BEGIN, _PEM_END = b"-----", b"BEGIN CERTIFICATE", b"END CERTIFICATE"
_WHITE_SPACE = b" \t\n\r\f\v"
# The start of an X.509 v3 certificate up to the first octet of its serial number.
_CERTIFICATE_START = re.compile(
    rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)(?P<tbs>\x30)(?:[\x00-\x7f]|\x81.|\x82..)"
    rb"\xa0\x03\x02\x01\x02\x02(?P<length>[\x01-\x15])(?P<first>.)",
    re.DOTALL,
)
_AUTHORITY_KEY = b"\x06\x03\x55\x1d\x23"  # OID 2.5.29.35, of AuthorityKeyIdentifier
_AUTHORITY_SERIAL, _OCTETS, _SEQUENCE = 0x82, 0x04, 0x30
_CRITICAL = b"\x01\x01"
_MAX_AUTHORITY_KEYS = 4
_X520_ATTRIBUTE = b"\x06\x03\x55\x04"  # OID 2.5.4, to which one octet is added
_X520_COMMON_NAME, _X520_COUNTRY = 3, 6
_PLAIN_STRINGS = b"\x0c\x13"  # UTF8String, PrintableString
_MAX_PLAIN_CHARS = 64  # ub-common-name, and none of the others' bounds is lower  [RFC 5280 app. A]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The parts of one parsed certificate that chains are judged by; nothing is verified yet.

    ``inner`` is for what the other fields lack, never for its serial number: see
    ``_load_certificate``.
    """

    inner: x509.Certificate
    der: bytes
    sha256: str
    serial_number: int
    signed_bytes: bytes
    signature_algorithm_der: bytes
    subject_der: bytes
    issuer_der: bytes
    extensions: Mapping[ObjectIdentifier, bytes]
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

    @property
    def subject(self) -> x509.Name:
        """Read on use, which takes a while.  Raises: MalformedEvidence("format")."""
        return _read_name(lambda: self.inner.subject)

    @property
    def issuer(self) -> x509.Name:
        """Read on use, which takes a while.  Raises: MalformedEvidence("format")."""
        return _read_name(lambda: self.inner.issuer)

    def is_issued_in_name_of(self, issuer: "Certificate") -> bool:
        """Names the issuer as its own certificate does; the same bytes need no reading."""
        return self.issuer_der == issuer.subject_der or self.issuer == issuer.subject

    def extension(self, oid: ObjectIdentifier) -> bytes | None:
        """The raw DER value of an extension that this module does not interpret."""
        return self.extensions.get(oid)


def parse_chain(
    pem: bytes,
    *,
    what: str,
    key_kinds: AbstractSet[KeyKind] = P256,
    known: Sequence[Certificate] = (),
) -> tuple[Certificate, ...]:
    """PEM certificates and white space, nothing else; NULs at the end are a vendor's habit.

    ``known`` are certificates parsed before with these ``key_kinds``: the same bytes are not parsed
    again.

    Raises: MalformedEvidence("format"); BadSignature("bad_key"): a key of no kind in ``key_kinds``.
    """
    parsed = {certificate.der: certificate for certificate in known}
    return tuple(
        parsed.get(encoded) or parse_certificate(encoded, what=what, key_kinds=key_kinds)
        for encoded in read_pem(pem, what=what)
    )


def read_pem(pem: bytes, *, what: str) -> tuple[bytes, ...]:
    """The DER of each certificate, unread: PEM and white space, at most ``MAX_CERTIFICATES``.

    Raises: MalformedEvidence("format").
    """
    text = pem.rstrip(b"\0").strip()
    if len(text) > MAX_CHAIN_BYTES:
        raise MalformedEvidence("format", f"{what}: {len(text)} bytes, at most {MAX_CHAIN_BYTES}")
    if not text:
        return ()
    *parts, end = text.split(_PEM_RULE)  # white space, label, digits, label; and so on
    if (
        len(parts) % 4
        or len(parts) > 4 * MAX_CERTIFICATES
        or any(map(bytes.strip, (*parts[::4], end)))
        or {*parts[1::4]} != {_PEM_BEGIN}
        or {*parts[3::4]} != {_PEM_END}
    ):
        raise MalformedEvidence("format", f"{what}: not a short list of PEM certificates")
    try:
        return tuple([_read_base64(digits) for digits in parts[2::4]])
    except binascii.Error as err:
        raise MalformedEvidence("format", f"{what}: not base64") from err


def _read_base64(lines: bytes) -> bytes:
    return binascii.a2b_base64(lines.translate(None, delete=_WHITE_SPACE), strict_mode=True)


def subject_public_key_info(data: bytes, *, what: str) -> bytes:
    """DER of the key of a certificate, of any kind; nothing else in the certificate is judged.

    Raises: MalformedEvidence("format").
    """
    try:
        key = _load_certificate(data, what)[0].public_key()
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", f"{what}: not an X.509 certificate") from err


def parse_certificate(
    data: bytes, *, what: str, key_kinds: AbstractSet[KeyKind] = P256
) -> Certificate:
    """One certificate in DER, version 3.

    Raises: MalformedEvidence("format"); BadSignature("bad_key"): a key of no kind in ``key_kinds``.
    """
    try:
        inner, parts = _load_certificate(data, what)
        if _has_odd_authority_serial(data):
            raise MalformedEvidence("format", f"{what}: its issuer's serial number is not positive")
        not_before, not_after = inner.not_valid_before_utc, inner.not_valid_after_utc
        key = inner.public_key()
        extensions = _read_extensions(inner)
        common_name = _plain_common_name(parts.subject_der)
        if common_name is None:
            names = inner.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            common_name = str(names[0].value) if names else ""
    except PARSE_ERRORS as err:  # the library reads each field on first use
        raise MalformedEvidence("format", f"{what}: not an X.509 certificate") from err
    if not common_name.isprintable():  # it is quoted in messages
        raise MalformedEvidence("format", f"{what}: unprintable common name")
    if extensions.has_unknown_critical:
        raise MalformedEvidence("format", f"{what}: unknown critical extension")
    constraints, usage = extensions.constraints, extensions.usage
    return Certificate(
        inner=inner,
        der=data,
        sha256=hashlib.sha256(data).hexdigest(),
        serial_number=parts.serial_number,
        signed_bytes=parts.signed_bytes,
        signature_algorithm_der=parts.signature_algorithm_der,
        subject_der=parts.subject_der,
        issuer_der=parts.issuer_der,
        extensions=extensions.others,
        not_before=not_before,
        not_after=not_after,
        common_name=common_name,
        public_key=_require_key(key, key_kinds, what),
        is_ca=constraints is not None and constraints.ca,
        path_length=None if constraints is None else constraints.path_length,
        signs_certificates=usage is not None and usage.key_cert_sign,
        signs_crls=usage is not None and usage.crl_sign,
    )


@dataclass(slots=True)
class _Extensions:
    """Those that chains are judged by, and the raw values of those that the library cannot read."""

    others: dict[ObjectIdentifier, bytes]
    constraints: x509.BasicConstraints | None = None
    usage: x509.KeyUsage | None = None
    has_unknown_critical: bool = False


def _read_extensions(certificate: x509.Certificate) -> _Extensions:
    """Raises: the library's errors."""
    found = _Extensions({})
    for extension in certificate.extensions:
        value = extension.value
        kind = type(value)
        if kind is x509.BasicConstraints:
            found.constraints = value
        elif kind is x509.KeyUsage:
            found.usage = value
        else:
            if kind is x509.UnrecognizedExtension:
                found.others[extension.oid] = value.value
            if extension.critical:
                found.has_unknown_critical = True
    return found


def _has_odd_authority_serial(data: bytes) -> bool:
    """Whether an AuthorityKeyIdentifier names a certificate by a number that is not positive.

    The library warns of it, and will fail one day. ``data`` is a certificate that it has read, so
    that lengths hold wherever the identifier is an extension; elsewhere it may be any text, and
    one with more of that than a certificate has use for counts as odd.
    """
    _, *tails = data.split(_AUTHORITY_KEY, _MAX_AUTHORITY_KEYS + 1)
    return len(tails) > _MAX_AUTHORITY_KEYS or any(map(_names_odd_serial, tails))


def _names_odd_serial(tail: bytes) -> bool:
    """``tail`` follows the OID of an AuthorityKeyIdentifier  [RFC 5280 sec. 4.2.1.1]."""
    octets_at = 3 if tail.startswith(_CRITICAL) else 0
    try:
        value_at = content_start(tail, octets_at)
        if (tail[octets_at], tail[value_at]) != (_OCTETS, _SEQUENCE):
            return False
        offset, end = content_start(tail, value_at), element_end(tail, value_at)
        while offset < end:
            next_offset = element_end(tail, offset)
            number = tail[content_start(tail, offset) : next_offset]
            if tail[offset] == _AUTHORITY_SERIAL and (number[0] & 0x80 or not any(number)):
                return True
            offset = next_offset
    except IndexError:  # no extension, or one that the library refuses
        pass
    return False


def _plain_common_name(name: bytes) -> str | None:
    """The first CN, or "", of a name whose parts are all short ASCII; of any other, None.

    The library takes as long for a name as for all the rest. ``name`` is DER that it has accepted:
    SEQUENCE OF SET OF SEQUENCE { OID, string }, here with one string a set, of 2.5.4.x alone.
    """
    common_name = None
    offset, end = content_start(name, 0), len(name)
    while offset < end:
        num_chars = name[offset + 1] - 9  # but for the string, a set has nine octets
        if not (
            2 <= num_chars <= _MAX_PLAIN_CHARS
            and name[offset + 3] == num_chars + 7
            and name.startswith(_X520_ATTRIBUTE, offset + 4)
            and name[offset + 9] in _PLAIN_STRINGS
            and name[offset + 10] == num_chars
        ):
            return None
        kind, text = name[offset + 8], name[offset + 11 : offset + 11 + num_chars]
        if not text.isascii() or (kind == _X520_COUNTRY and num_chars != 2):
            return None
        if kind == _X520_COMMON_NAME and common_name is None:
            common_name = text.decode("ascii")
        offset += 11 + num_chars
    return common_name or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Bytes of a certificate as they were received."""

    serial_number: int
    signed_bytes: bytes
    signature_algorithm_der: bytes
    issuer_der: bytes
    subject_der: bytes


def _load_certificate(data: bytes, what: str) -> tuple[x509.Certificate, _Parts]:
    """The certificate, and those of its parts that are taken from the bytes received.

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
    signed_bytes = data[tbs_at : element_end(data, tbs_at)]
    algorithm_at = first_at + start["length"][0]
    issuer_at, validity_at, subject_at, key_at = element_ends(data, algorithm_at, 4)
    algorithm = data[algorithm_at:issuer_at]
    if not data.startswith(algorithm, tbs_at + len(signed_bytes)):
        raise MalformedEvidence("format", f"{what}: names two signature algorithms")
    return inner, _Parts(
        serial_number=0 if is_zero else inner.serial_number,
        signed_bytes=signed_bytes,
        signature_algorithm_der=algorithm,
        issuer_der=data[issuer_at:validity_at],
        subject_der=data[subject_at:key_at],
    )


def _read_name(read: Callable[[], x509.Name]) -> x509.Name:
    try:
        return read()
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", "certificate: a name that cannot be read") from err


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
