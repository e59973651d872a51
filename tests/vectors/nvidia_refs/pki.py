"""Who signs RIMs and OCSP answers in these tests?  A P-384 PKI shaped like NVIDIA's, keys public.

All keys derive from a public constant and all signatures are deterministic, so that the vectors can
be made again byte for byte.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from lxml import etree  # type: ignore[import-untyped]

from attestation.anchors import Anchor, TrustAnchors
from attestation.nvidia.xmldsig import C14N_1_1, DSIG, ECDSA_SHA384, ENVELOPED, SHA384

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ROOT = "Starshade test CoRIM Root CA"
L2 = "NVIDIA Reference Value GH100 CA"
L3 = "NVIDIA Reference Value L3 GH100 001"
SIGNER = "HCC RIM L4 Signer"
RESPONDER = "Starshade test OCSP Responder"
_P384_ORDER = int(
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    16,
)
_SEED = b"starshade test RIM PKI: this seed is public, anybody can sign with it"


@cache
def key(name: str, curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    """The key of that name; as public as the seed."""
    digest = hashlib.sha512(_SEED + b"/" + name.encode()).digest()
    order = _P384_ORDER if curve is None else 2**255
    return ec.derive_private_key(
        int.from_bytes(digest, "big") % (order - 1) + 1, curve or ec.SECP384R1()
    )


@dataclass(frozen=True, kw_only=True)
class Issue:
    """One certificate to make; ``path_length`` None is not a CA."""

    subject: str
    issuer: str
    path_length: int | None = None
    not_before: datetime = AT - 365 * DAY
    not_after: datetime = AT + 365 * DAY
    purposes: tuple[x509.ObjectIdentifier, ...] = ()
    extra: x509.ExtensionType | None = None  # critical
    key_name: str | None = None  # of the subject, when it is not its name
    curve: ec.EllipticCurve | None = None
    signed_with: hashes.SHA384 | hashes.SHA512 = field(default_factory=hashes.SHA384)

    def make(self) -> x509.Certificate:
        """Signed by the issuer's key."""
        is_ca = self.path_length is not None
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(self.subject))
            .issuer_name(_name(self.issuer))
            .public_key(key(self.key_name or self.subject, self.curve).public_key())
            .serial_number(_serial(self.subject))
            .not_valid_before(self.not_before)
            .not_valid_after(self.not_after)
            .add_extension(
                x509.BasicConstraints(ca=is_ca, path_length=self.path_length), critical=True
            )
            .add_extension(_usage(is_ca), critical=True)
        )
        if self.purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(self.purposes), critical=True)
        if self.extra is not None:
            builder = builder.add_extension(self.extra, critical=True)
        return builder.sign(key(self.issuer), self.signed_with, ecdsa_deterministic=True)


ISSUES = {
    "signer": Issue(subject=SIGNER, issuer=L3),
    "l3": Issue(subject=L3, issuer=L2, path_length=0),
    "l2": Issue(subject=L2, issuer=ROOT, path_length=1),
    "root": Issue(subject=ROOT, issuer=ROOT, path_length=2),
}


@cache
def chain() -> tuple[x509.Certificate, ...]:
    """Signer, L3, L2, root."""
    return tuple(issue.make() for issue in ISSUES.values())


def anchors() -> TrustAnchors:
    """The root above, and nothing else."""
    digest = hashlib.sha256(chain()[-1].public_bytes(Encoding.DER)).hexdigest()
    return TrustAnchors(
        anchors=(
            Anchor(name="test", kind="fake", family="nvidia-rim", sha256=digest, source="pki.py"),
        )
    )


@dataclass(frozen=True, kw_only=True)
class Signing:
    """How a document is signed; every default is right."""

    c14n: str = C14N_1_1
    method: str = ECDSA_SHA384
    digest: str = SHA384
    transforms: tuple[str, ...] = (ENVELOPED, C14N_1_1)
    transform_body: str = ""
    uri: str | None = ""
    reference_extra: str = ""
    key_info_extra: str = ""
    certificates: tuple[x509.Certificate, ...] | None = None
    key_name: str = SIGNER
    before: str = "</SoftwareIdentity>"  # where the signature is put, at its last occurrence


def sign(document: str, how: Signing | None = None) -> str:
    """The document with an enveloped signature before its end tag."""
    how = how or Signing()
    digest = hashlib.sha384(_canonical(etree.fromstring(document.encode()))).digest()
    signature = _signature(how, digest, "")
    unsigned = etree.fromstring(_insert(document, signature, how.before).encode())
    (info,) = unsigned.iter(f"{{{DSIG}}}SignedInfo")
    value = base64.b64encode(_raw_signature(how.key_name, _canonical(info))).decode()
    return _insert(document, _signature(how, digest, value), how.before)


def _signature(how: Signing, digest: bytes, value: str) -> str:
    certificates = chain() if how.certificates is None else how.certificates
    transforms = "".join(
        f'<ds:Transform Algorithm="{name}">{how.transform_body}</ds:Transform>'
        for name in how.transforms
    )
    uri = "" if how.uri is None else f' URI="{how.uri}"'
    encoded = "".join(
        f"<ds:X509Certificate>{_lines(certificate)}</ds:X509Certificate>"
        for certificate in certificates
    )
    return (
        f'<ds:Signature xmlns:ds="{DSIG}"><ds:SignedInfo>'
        f'<ds:CanonicalizationMethod Algorithm="{how.c14n}"/>'
        f'<ds:SignatureMethod Algorithm="{how.method}"/>'
        f"<ds:Reference{uri}><ds:Transforms>{transforms}</ds:Transforms>"
        f'<ds:DigestMethod Algorithm="{how.digest}"/>'
        f"<ds:DigestValue>{base64.b64encode(digest).decode()}</ds:DigestValue></ds:Reference>"
        f"{how.reference_extra}</ds:SignedInfo><ds:SignatureValue>{value}</ds:SignatureValue>"
        f"<ds:KeyInfo><ds:X509Data>{encoded}</ds:X509Data>{how.key_info_extra}</ds:KeyInfo>"
        "</ds:Signature>"
    )


@dataclass(frozen=True, kw_only=True)
class Ocsp:
    """One answer about the signer of the chain by default; every default is right."""

    subject: Literal["signer", "other", "l3"] = "signer"
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD
    reason: x509.ReasonFlags | None = None
    this_update: datetime = AT - timedelta(hours=1)
    produced_at: datetime | None = None  # when it was true, unless it says otherwise
    next_update: datetime | None = AT + timedelta(hours=23)
    id_hash: hashes.HashAlgorithm = field(default_factory=hashes.SHA384)
    id_issuer: Literal["l3", "l2"] | None = None
    responder: Issue = Issue(
        subject=RESPONDER, issuer=L3, purposes=(ExtendedKeyUsageOID.OCSP_SIGNING,)
    )
    signing_key: str = RESPONDER
    with_responder: bool = True
    nonce: bytes | None = None
    extra: x509.ExtensionType | None = None  # critical
    named: Issue | None = None  # whom the answer names, when not its responder
    encoding: ocsp.OCSPResponderEncoding = ocsp.OCSPResponderEncoding.HASH

    def make(self) -> bytes:
        """The DER of the answer."""
        by_name = dict(zip(ISSUES, chain(), strict=True))
        by_name["other"] = Issue(subject="Other signer", issuer=L3).make()
        issuer = self.id_issuer or ("l2" if self.subject == "l3" else "l3")
        responder = self.responder.make()
        is_revoked = self.status is ocsp.OCSPCertStatus.REVOKED
        builder = (
            ocsp.OCSPResponseBuilder()
            .add_response(
                cert=by_name[self.subject],
                issuer=by_name[issuer],
                algorithm=self.id_hash,
                cert_status=self.status,
                this_update=self.this_update,
                next_update=self.next_update,
                revocation_time=AT - 30 * DAY if is_revoked else None,
                revocation_reason=self.reason,
            )
            .responder_id(self.encoding, self.named.make() if self.named else responder)
        )
        if self.nonce is not None:
            builder = builder.add_extension(x509.OCSPNonce(self.nonce), critical=False)
        if self.extra is not None:
            builder = builder.add_extension(self.extra, critical=True)
        who = self.named or self.responder
        made = builder.sign(key(who.key_name or who.subject, who.curve), hashes.SHA384())
        return self._sign_again(made, responder)

    def _sign_again(self, made: ocsp.OCSPResponse, responder: x509.Certificate) -> bytes:
        """The library signs at random and says when; here both are fixed."""
        tbs = _with_produced_at(made, self.produced_at or self.this_update)
        signature = key(self.signing_key).sign(
            tbs, ec.ECDSA(hashes.SHA384(), deterministic_signing=True)
        )
        algorithm = _tlv(0x30, bytes.fromhex("06082a8648ce3d040303"))
        parts = tbs + algorithm + _tlv(0x03, b"\0" + signature)
        if self.with_responder:
            parts += _tlv(0xA0, _tlv(0x30, responder.public_bytes(Encoding.DER)))
        basic = bytes.fromhex("06092b0601050507300101") + _tlv(0x04, _tlv(0x30, parts))
        return _tlv(0x30, bytes.fromhex("0a0100") + _tlv(0xA0, _tlv(0x30, basic)))


def _with_produced_at(made: ocsp.OCSPResponse, moment: datetime) -> bytes:
    now = made.produced_at_utc.strftime("%Y%m%d%H%M%SZ").encode()
    fixed = moment.strftime("%Y%m%d%H%M%SZ").encode()
    assert made.tbs_response_bytes.count(b"\x18\x0f" + now) == 1
    return made.tbs_response_bytes.replace(b"\x18\x0f" + now, b"\x18\x0f" + fixed)


def _tlv(tag: int, value: bytes) -> bytes:
    length = len(value)
    if length < 0x80:
        return bytes([tag, length]) + value
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + value


def _raw_signature(name: str, data: bytes) -> bytes:
    signature = key(name).sign(data, ec.ECDSA(hashes.SHA384(), deterministic_signing=True))
    r, s = decode_dss_signature(signature)
    return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def _canonical(element: object) -> bytes:
    return bytes(etree.tostring(element, method="c14n", with_comments=False))


def _insert(document: str, signature: str, before: str) -> str:
    start, found, end = document.rpartition(before)
    return start + signature + found + end


def _lines(certificate: x509.Certificate) -> str:
    text = base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()
    return "\n".join(text[i : i + 64] for i in range(0, len(text), 64)) + "\n"


def pem(certificates: Sequence[x509.Certificate]) -> str:
    """PEM, in the order given."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates).decode()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _serial(subject: str) -> int:
    return int.from_bytes(hashlib.sha256(subject.encode()).digest()[:15], "big") + 1


def _usage(is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
