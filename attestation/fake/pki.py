"""Who signs for the FAKE TEE?  A PKI shaped like Intel's, whose every key anybody can compute.

All keys derive from a public constant, so a signature under this root proves nothing at all. It
exists so that a machine without a TEE runs the whole appraisal; only the development policy lets
its root in, as a warning. Certificates are deterministic, so the root can be pinned by digest.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

PUBLIC_SECRET = b"starshade FAKE TEE: this seed is public, anybody can sign with it"
ROOT_NAME = "Starshade FAKE Root CA (no security)"
PCK_CA_NAME = "Starshade FAKE SGX PCK Platform CA"
PCK_NAME = "Starshade FAKE SGX PCK Certificate"
TCB_SIGNER_NAME = "Starshade FAKE SGX TCB Signing"
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_NOT_BEFORE = datetime(2024, 1, 1, tzinfo=UTC)
_NOT_AFTER = datetime(2049, 12, 31, tzinfo=UTC)
_SERIAL_BYTES = 16


@dataclass(frozen=True)
class FakePki:
    """Root, PCK CA and TCB signer under one seed; another seed is another, unpinned root."""

    seed: bytes = PUBLIC_SECRET

    @cached_property
    def root(self) -> x509.Certificate:
        """The self-signed root."""
        return self._issue(ROOT_NAME, ROOT_NAME, path_length=1)

    @cached_property
    def pck_ca(self) -> x509.Certificate:
        """The issuer of PCK certificates and of the PCK CRL."""
        return self._issue(PCK_CA_NAME, ROOT_NAME, path_length=0)

    @cached_property
    def tcb_signer(self) -> x509.Certificate:
        """The signer of TCB info and QE identity."""
        return self._issue(TCB_SIGNER_NAME, ROOT_NAME, path_length=None)

    def issue_pck(
        self,
        sgx_extension: bytes,
        *,
        not_before: datetime = _NOT_BEFORE,
        not_after: datetime = _NOT_AFTER,
    ) -> x509.Certificate:
        """The platform's certificate, with the DER of Intel's SGX extension."""
        extension = x509.UnrecognizedExtension(
            x509.ObjectIdentifier("1.2.840.113741.1.13.1"), sgx_extension
        )
        return self._issue(
            PCK_NAME,
            PCK_CA_NAME,
            path_length=None,
            extension=extension,
            not_before=not_before,
            not_after=not_after,
        )

    def pck_crl(
        self, issued: datetime, next_update: datetime, revoked: Iterable[x509.Certificate] = ()
    ) -> bytes:
        """DER of the CRL of the PCK CA."""
        return self._crl(self.pck_ca, PCK_CA_NAME, issued, next_update, revoked)

    def root_crl(
        self, issued: datetime, next_update: datetime, revoked: Iterable[x509.Certificate] = ()
    ) -> bytes:
        """DER of the CRL of the root."""
        return self._crl(self.root, ROOT_NAME, issued, next_update, revoked)

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """The P-256 key of that name; as public as the seed."""
        digest = hashlib.sha512(self.seed + b"/" + name.encode("utf-8")).digest()
        scalar = int.from_bytes(digest, "big") % (_P256_ORDER - 1) + 1
        return ec.derive_private_key(scalar, ec.SECP256R1())

    def sign(self, name: str, data: bytes) -> bytes:
        """Raw r||s, 64 bytes, by the key of that name; the same bytes every time."""
        signature = self.key(name).sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
        r, s = decode_dss_signature(signature)
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def public_point(self, name: str) -> bytes:
        """x||y of the key of that name, 64 bytes."""
        public_key = self.key(name).public_key()
        return public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]

    def _issue(
        self,
        subject: str,
        issuer: str,
        *,
        path_length: int | None,
        extension: x509.ExtensionType | None = None,
        not_before: datetime = _NOT_BEFORE,
        not_after: datetime = _NOT_AFTER,
    ) -> x509.Certificate:
        is_ca = path_length is not None
        public_key = self.key(subject).public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(public_key)
            .serial_number(_serial_number(subject, extension))
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=path_length), critical=True)
            .add_extension(_key_usage(is_ca), critical=True)
        )
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key(issuer), hashes.SHA256(), ecdsa_deterministic=True)

    def _crl(
        self,
        issuer: x509.Certificate,
        name: str,
        issued: datetime,
        next_update: datetime,
        revoked: Iterable[x509.Certificate],
    ) -> bytes:
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(issued)
            .next_update(next_update)
        )
        for certificate in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(certificate.serial_number)
                .revocation_date(issued)
                .build()
            )
        crl = builder.sign(self.key(name), hashes.SHA256(), ecdsa_deterministic=True)
        return crl.public_bytes(Encoding.DER)


def pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """PEM, in the order given."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _serial_number(subject: str, extension: x509.ExtensionType | None) -> int:
    salt = b"" if extension is None else extension.public_bytes()
    return int.from_bytes(hashlib.sha256(subject.encode() + salt).digest()[:_SERIAL_BYTES], "big")


def _key_usage(is_ca: bool) -> x509.KeyUsage:
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
