"""Revocation lists that break one rule each, of a CA that is trusted."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from attestation.errors import AttestationError
from attestation.x509 import (
    parse_certificate,
    require_crl_current,
    require_unrevoked,
    verify_crl,
)
from tests.attestation.issuing import (
    CA,
    DAY,
    KEYS,
    LEAF,
    PSS,
    ROOT,
    RSA_3072,
    issue,
    name_of,
    parsed,
)
from tests.attestation.samples import AT, flip_bit


def _crl(
    *,
    issuer: str = "ca",
    extension: x509.ExtensionType | None = None,
    is_critical: bool = True,
    serials: Sequence[int] = (),
    algorithm: hashes.SHA256 | hashes.SHA512 = hashes.SHA256(),  # noqa: B008 - holds nothing
) -> x509.CertificateRevocationList:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(name_of(issuer))
        .last_update(AT - DAY)
        .next_update(AT + DAY)
    )
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(AT)
        builder = builder.add_revoked_certificate(entry.build())
    if extension is not None:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(KEYS["ca"], algorithm)


def _crl_code(data: bytes, issuer: x509.Certificate = CA) -> str:
    with pytest.raises(AttestationError) as caught:
        verify_crl(data, issuer=parsed(issuer), what="CRL")
    return caught.value.code


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_crls_are_read_in_both_encodings(encoding: Encoding) -> None:
    listed = verify_crl(_crl(serials=[7, 8]).public_bytes(encoding), issuer=parsed(CA), what="CRL")
    empty = verify_crl(_crl().public_bytes(encoding), issuer=parsed(CA), what="CRL")

    require_unrevoked(empty, parsed(LEAF))
    with pytest.raises(AttestationError) as caught:
        require_unrevoked(listed, parsed(LEAF))
    assert caught.value.code == "certificate_revoked"


def test_each_rule_of_a_crl() -> None:
    der = _crl().public_bytes(Encoding.DER)
    indirect = x509.IssuingDistributionPoint(None, None, False, False, None, True, False)
    no_crl_sign = issue("ca", "root", is_ca=False, signs_certificates=True)

    assert _crl_code(b"") == "crl_missing"
    assert _crl_code(b"\x30\0") == "format"
    assert _crl_code(b"MIIB") == "format"
    assert _crl_code(der, issuer=ROOT) == "crl_issuer"
    assert _crl_code(der, issuer=no_crl_sign) == "crl_issuer"
    assert _crl_code(flip_bit(der, 8 * len(der) - 1)) == "crl_signature"
    assert _crl_code(_crl(extension=indirect).public_bytes(Encoding.DER)) == "format"
    assert _crl_code(_crl().public_bytes(Encoding.PEM) + b" " * 1024 * 1024) == "format"


@pytest.mark.parametrize("is_critical", [True, False])
@pytest.mark.parametrize(
    "extension",
    [
        x509.DeltaCRLIndicator(1),
        x509.IssuingDistributionPoint(None, None, True, False, None, False, False),
    ],
    ids=["delta", "of users alone"],
)
def test_a_part_of_a_revocation_list_is_none(
    extension: x509.ExtensionType, is_critical: bool
) -> None:
    """Also when the CA forgot to call the extension critical, as RFC 5280 asks it to."""
    crl = _crl(extension=extension, is_critical=is_critical)

    assert _crl_code(crl.public_bytes(Encoding.DER)) == "format"


def test_a_crl_signed_by_another_algorithm_is_refused() -> None:
    assert _crl_code(_crl(algorithm=hashes.SHA512()).public_bytes(Encoding.DER)) == "crl_signature"


def test_a_revocation_list_may_be_numbered() -> None:
    numbered = _crl(extension=x509.CRLNumber(7), is_critical=False).public_bytes(Encoding.DER)

    require_unrevoked(verify_crl(numbered, issuer=parsed(CA), what="CRL"), parsed(LEAF))


def test_a_crl_is_current_from_its_update_until_just_before_the_next() -> None:
    crl = verify_crl(_crl().public_bytes(Encoding.DER), issuer=parsed(CA), what="CRL")

    require_crl_current(crl, AT - DAY)
    for moment, code in (
        (AT - DAY - timedelta(seconds=1), "collateral_not_yet_valid"),
        (AT + DAY, "crl_expired"),
    ):
        with pytest.raises(AttestationError) as caught:
            require_crl_current(crl, moment)
        assert caught.value.code == code


def test_a_crl_that_never_ends_is_refused() -> None:
    """Spliced by hand: the library's builder insists on a next update."""
    tbs = _crl().tbs_certlist_bytes
    next_update_at = tbs.index(b"\x17\x0d", tbs.index(b"\x17\x0d") + 1)  # the second UTCTime
    content = tbs[2:next_update_at] + tbs[next_update_at + 15 :]
    endless = bytes([0x30, len(content)]) + content
    signature = KEYS["ca"].sign(endless, ec.ECDSA(hashes.SHA256()))
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
    bits = b"\x03" + bytes([len(signature) + 1]) + b"\0" + signature
    inner = endless + algorithm + bits

    assert len(content) < 0x80 <= len(inner) < 0x100
    assert _crl_code(b"\x30\x81" + bytes([len(inner)]) + inner) == "crl_expired"


def test_a_crl_names_one_algorithm_and_is_signed_over_the_bytes_received() -> None:
    """Both algorithms are ones that we take, so only their difference is wrong."""
    der = _crl(serials=[7]).public_bytes(Encoding.DER)
    sha256, sha384 = (bytes.fromhex(f"06082a8648ce3d0403{n:02x}") for n in (2, 3))
    assert der.count(sha256) == 2
    last = der.rindex(sha256)

    assert _crl_code(der[:last] + der[last:].replace(sha256, sha384)) == "format"
    assert _crl_code(der[:last].replace(sha256, sha384) + der[last:]) == "format"
    assert _crl_code(der.replace(sha256, sha384)) == "crl_signature"
    listed = der.index(b"\2\1\7")
    assert _crl_code(der[:listed] + b"\2\1\6" + der[listed + 3 :]) == "crl_signature"


def test_a_crl_may_spell_its_issuer_in_another_string_type() -> None:
    printable = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "ca", _ASN1Type.PrintableString)]
    )
    crl = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(printable)
        .last_update(AT - DAY)
        .next_update(AT + DAY)
        .sign(KEYS["ca"], hashes.SHA256())
    )

    data = crl.public_bytes(Encoding.DER)
    assert parsed(CA).subject_der not in data
    assert verify_crl(data, issuer=parsed(CA), what="CRL").last_update == AT - DAY


@pytest.mark.parametrize(("pss", "code"), [(PSS, None), (None, "crl_signature")])
def test_a_crl_is_signed_in_the_same_way(pss: padding.PSS | None, code: str | None) -> None:
    builder = x509.CertificateRevocationListBuilder().issuer_name(name_of("root"))
    builder = builder.last_update(AT - DAY).next_update(AT + DAY)
    crl = builder.sign(RSA_3072, hashes.SHA384(), rsa_padding=pss).public_bytes(Encoding.DER)
    root = parse_certificate(
        issue("root", "ca", is_ca=True, key=RSA_3072).public_bytes(Encoding.DER),
        what="root",
        key_kinds={"rsa"},
    )

    if code is None:
        assert verify_crl(crl, issuer=root, what="CRL").last_update == AT - DAY
        return
    with pytest.raises(AttestationError) as caught:
        verify_crl(crl, issuer=root, what="CRL")
    assert caught.value.code == code
