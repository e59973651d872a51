"""P-384 keys, certificates and raw signatures for vectors: the same bytes every time.

Keys derive from a public constant, so nothing signed with them is worth anything.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

_SEED = b"starshade test keys: this seed is public, anybody can sign with it"
_ORDERS: Mapping[str, int] = {
    "secp256r1": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "secp384r1": int(
        "ffffffffffffffffffffffffffffffffffffffffffffffff"
        "c7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        16,
    ),
}
NOT_BEFORE = datetime(2024, 1, 1, tzinfo=UTC)
NOT_AFTER = datetime(2049, 12, 31, tzinfo=UTC)


def key(name: str, curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    """The key of that name, on P-384 unless said."""
    curve = curve or ec.SECP384R1()
    digest = hashlib.sha512(_SEED + b"/" + name.encode()).digest()
    return ec.derive_private_key(
        int.from_bytes(digest, "big") % (_ORDERS[curve.name] - 1) + 1, curve
    )


def sign_der(name: str, data: bytes) -> bytes:
    """An ES384 signature in DER, as neither JOSE nor COSE has it."""
    return key(name).sign(data, ec.ECDSA(hashes.SHA384(), deterministic_signing=True))


def sign(name: str, data: bytes) -> bytes:
    """An ES384 signature: r||s, 96 bytes."""
    r, s = decode_dss_signature(sign_der(name, data))
    return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def certificate(
    subject: str,
    issuer: str,
    *,
    path_length: int | None = None,
    is_ca: bool | None = None,
    usage: Mapping[str, bool] | None = None,
    not_before: datetime = NOT_BEFORE,
    not_after: datetime = NOT_AFTER,
    key_name: str | None = None,
    issuer_key: str | None = None,
    curve: ec.EllipticCurve | None = None,
) -> x509.Certificate:
    """A certificate over the key named like its subject, signed by the one named like its issuer.

    A CA when it has a path length, unless ``is_ca`` says otherwise; ``usage`` wins over the usual.
    """
    is_ca = path_length is not None if is_ca is None else is_ca
    usages: dict[str, Any] = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    usages |= {"digital_signature": not is_ca, "key_cert_sign": is_ca, "crl_sign": is_ca}
    usages |= usage or {}
    serial = hashlib.sha256(f"{subject}/{issuer}/{key_name}".encode()).digest()[:15]
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key(key_name or subject, curve).public_key())
        .serial_number(int.from_bytes(serial, "big") | 1)
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(
            x509.BasicConstraints(ca=is_ca, path_length=path_length if is_ca else None),
            critical=True,
        )
        .add_extension(x509.KeyUsage(**usages), critical=True)
        .sign(key(issuer_key or issuer), hashes.SHA384(), ecdsa_deterministic=True)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
