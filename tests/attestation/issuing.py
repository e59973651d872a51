"""Certificates to test with: a root, a CA and a leaf, any part of which a test may have issued."""

from collections.abc import Callable
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from attestation.certificate import Certificate, parse_chain
from attestation.fake.pki import pem
from tests.attestation.samples import AT

DAY = timedelta(days=1)
KEYS = {
    name: ec.derive_private_key(number, ec.SECP256R1())
    for number, name in enumerate(("root", "ca", "leaf"), start=1000)
}
RSA_2048, RSA_3072 = (
    rsa.generate_private_key(public_exponent=65537, key_size=bits) for bits in (2048, 3072)
)
PSS = padding.PSS(padding.MGF1(hashes.SHA384()), 48)


def issue(
    subject: str,
    issuer: str,
    *,
    is_ca: bool,
    path_length: int | None = None,
    signs_certificates: bool | None = None,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    critical: x509.ExtensionType | None = None,
    serial_number: int = 7,
    issuer_name: x509.Name | None = None,
    sign: Callable[[x509.CertificateBuilder], x509.Certificate] | None = None,
) -> x509.Certificate:
    """Valid for a day around AT and signed by the issuer's key, unless ``sign`` does it."""
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca if signs_certificates is None else signs_certificates,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(subject))
        .issuer_name(issuer_name or name_of(issuer))
        .public_key((key or KEYS[subject]).public_key())
        .serial_number(serial_number)
        .not_valid_before(AT - DAY)
        .not_valid_after(AT + DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=path_length), critical=True)
        .add_extension(usage, critical=True)
    )
    if critical is not None:
        builder = builder.add_extension(critical, critical=True)
    return sign(builder) if sign else builder.sign(KEYS[issuer], hashes.SHA256())


def name_of(name: str) -> x509.Name:
    """A name that is a common name alone."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


ROOT = issue("root", "root", is_ca=True, path_length=1)
CA = issue("ca", "root", is_ca=True, path_length=0)
LEAF = issue("leaf", "ca", is_ca=False)


def parsed(certificate: x509.Certificate) -> Certificate:
    """As our own reader sees it."""
    return parse_chain(pem((certificate,)), what="issuer")[0]
