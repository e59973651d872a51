"""Chains and revocation lists that break one rule each, under a root that is pinned."""

import base64
import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from attestation.anchors import Anchor, TrustAnchors
from attestation.certificate import MAX_CHAIN_BYTES
from attestation.errors import AttestationError
from attestation.fake.pki import pem
from attestation.x509 import (
    Certificate,
    KeyKind,
    VerifiedChain,
    parse_certificate,
    parse_chain,
    require_chain_current,
    require_crl_current,
    require_unrevoked,
    verify_chain,
    verify_crl,
)
from tests.attestation.samples import AT, flip_bit

_DAY = timedelta(days=1)
_KEYS = {
    name: ec.derive_private_key(number, ec.SECP256R1())
    for number, name in enumerate(("root", "ca", "leaf"), start=1000)
}
_RSA_2048, _RSA_3072 = (
    rsa.generate_private_key(public_exponent=65537, key_size=bits) for bits in (2048, 3072)
)
_PSS = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
_SERIAL = b"\xa0\3\2\1\2\2\1"  # version 3, then the header of a serial number of one byte
_UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\5\0")


def _issue(
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
        .subject_name(_name(subject))
        .issuer_name(issuer_name or _name(issuer))
        .public_key((key or _KEYS[subject]).public_key())
        .serial_number(serial_number)
        .not_valid_before(AT - _DAY)
        .not_valid_after(AT + _DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=path_length), critical=True)
        .add_extension(usage, critical=True)
    )
    if critical is not None:
        builder = builder.add_extension(critical, critical=True)
    return sign(builder) if sign else builder.sign(_KEYS[issuer], hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


_ROOT = _issue("root", "root", is_ca=True, path_length=1)
_CA = _issue("ca", "root", is_ca=True, path_length=0)
_LEAF = _issue("leaf", "ca", is_ca=False)


def _verify(certificates: Sequence[x509.Certificate], num_certificates: int = 3) -> VerifiedChain:
    root = certificates[-1].public_bytes(Encoding.DER)
    anchor = Anchor(
        name="root",
        kind="vendor",
        family="dcap",
        sha256=hashlib.sha256(root).hexdigest(),
        source="here",
    )
    return verify_chain(
        parse_chain(pem(certificates), what="chain"),
        num_certificates=num_certificates,
        family="dcap",
        anchors=TrustAnchors(anchors=(anchor,)),
        what="chain",
    )


def _code(certificates: Sequence[x509.Certificate], num_certificates: int = 3) -> str:
    with pytest.raises(AttestationError) as caught:
        _verify(certificates, num_certificates)
    return caught.value.code


def _parse_code(data: bytes) -> str:
    with pytest.raises(AttestationError) as caught:
        parse_chain(data, what="chain")
    return caught.value.code


def test_a_good_chain_is_verified() -> None:
    chain = _verify((_LEAF, _CA, _ROOT))

    assert [c.common_name for c in chain.certificates] == ["leaf", "ca", "root"]
    assert (chain.anchor.name, chain.not_after) == ("root", AT + _DAY)


def test_each_rule_of_the_chain() -> None:
    no_ca = _issue("ca", "root", is_ca=False, signs_certificates=True)
    no_usage = _issue("ca", "root", is_ca=True, signs_certificates=False)
    shallow_root = _issue("root", "root", is_ca=True, path_length=0)
    forged = _issue("leaf", "ca", is_ca=False).public_bytes(Encoding.DER)
    forged_leaf = x509.load_der_x509_certificate(flip_bit(forged, 8 * len(forged) - 1))

    assert _code((_CA, _ROOT)) == "chain"
    assert _code((_LEAF, _CA, _CA, _ROOT)) == "chain"
    assert _code((_LEAF, no_ca, _ROOT)) == "chain"
    assert _code((_LEAF, no_usage, _ROOT)) == "chain"
    assert _code((_LEAF, _CA, shallow_root)) == "chain"
    assert _code((_CA, _ROOT), num_certificates=2) == "chain"  # a CA is no leaf
    assert _code((_CA, _LEAF, _ROOT)) == "chain_order"
    stray = _issue(
        "leaf", "stray", is_ca=False, sign=lambda b: b.sign(_KEYS["ca"], hashes.SHA256())
    )
    assert _code((stray, _CA, _ROOT)) == "chain_order"
    assert _code((forged_leaf, _CA, _ROOT)) == "chain_signature"


def test_dates_are_inclusive_and_of_every_certificate() -> None:
    chain = _verify((_LEAF, _CA, _ROOT))

    require_chain_current(chain, AT - _DAY)
    require_chain_current(chain, AT + _DAY)
    for outside in (AT - _DAY - timedelta(seconds=1), AT + _DAY + timedelta(seconds=1)):
        with pytest.raises(AttestationError) as caught:
            require_chain_current(chain, outside)
        assert caught.value.code == "certificate_time"


def test_certificates_that_are_not_understood_are_refused() -> None:
    p384 = _issue("leaf", "ca", is_ca=False, key=ec.derive_private_key(9, ec.SECP384R1()))
    critical = _issue("leaf", "ca", is_ca=False, critical=_UNKNOWN)
    good = pem((_LEAF,))

    assert _parse_code(pem((p384,))) == "bad_key"
    assert _parse_code(pem((critical,))) == "format"
    assert _parse_code(b"x" + good) == "format"
    assert _parse_code(good + b"x" + good) == "format"
    assert _parse_code(good * 9) == "format"
    assert _parse_code(good.replace(b"M", b"!", 1)) == "format"
    assert _parse_code(b" " + good + b"\n" * 70_000 + good) == "format"


@pytest.mark.parametrize("filler", [b" ", b"\n", b"A", b"A ", b"=", b"-----BEGIN CERTIFICATE-----"])
def test_a_chain_of_the_largest_size_is_refused_at_once(filler: bytes) -> None:
    """A pattern that tries every split of white space would take hours; nothing is verified yet."""
    junk = b"-----BEGIN CERTIFICATE-----" + filler * (MAX_CHAIN_BYTES // len(filler))
    data = junk[: MAX_CHAIN_BYTES - 1] + b"!"
    started = time.perf_counter()

    assert _parse_code(data) == "format"
    assert time.perf_counter() - started < 1.0


def test_only_the_kinds_of_key_that_were_asked_for() -> None:
    def encoded(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
        return _issue("leaf", "ca", is_ca=False, key=key).public_bytes(Encoding.DER)

    p256, p384 = (encoded(ec.derive_private_key(9, c)) for c in (ec.SECP256R1(), ec.SECP384R1()))
    p521 = encoded(ec.derive_private_key(9, ec.SECP521R1()))
    keys: dict[KeyKind, bytes] = {"p256": p256, "p384": p384, "rsa": encoded(_RSA_3072)}

    for kind, data in keys.items():
        assert parse_certificate(data, what="leaf", key_kinds={kind}).common_name == "leaf"
        others = keys.keys() - {kind}
        for refused in (data, p521, encoded(_RSA_2048)):
            with pytest.raises(AttestationError) as caught:
                parse_certificate(refused, what="leaf", key_kinds=others)
            assert caught.value.code == "bad_key"
    with pytest.raises(AttestationError) as caught:
        parse_certificate(keys["rsa"], what="leaf", key_kinds={"rsa"}).ec_key  # noqa: B018
    assert caught.value.code == "bad_key"


def _rsa_chain(pss: padding.PSS | None, algorithm: hashes.SHA256 | hashes.SHA384) -> bytes:
    """A leaf with serial number 0 signed by an RSA root, as AMD's are."""

    def sign(builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(_RSA_3072, algorithm, rsa_padding=pss)

    root = _issue("root", "root", is_ca=True, key=_RSA_3072, sign=sign)
    one = _issue("leaf", "root", is_ca=False, serial_number=1, sign=sign)
    zero = one.tbs_certificate_bytes.replace(_SERIAL + b"\1", _SERIAL + b"\0", 1)
    signature = _RSA_3072.sign(zero, pss or padding.PKCS1v15(), algorithm)
    leaf = one.public_bytes(Encoding.DER).replace(one.tbs_certificate_bytes, zero)
    leaf = leaf.replace(one.signature, signature)
    return b"".join(_armoured(data) for data in (leaf, root.public_bytes(Encoding.DER)))


def _armoured(data: bytes) -> bytes:
    text = base64.b64encode(data)
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"\n-----END CERTIFICATE-----\n"


def _verify_rsa(chain_pem: bytes) -> VerifiedChain:
    certificates = parse_chain(chain_pem, what="chain", key_kinds={"p256", "rsa"})
    anchor = Anchor(
        name="root", kind="vendor", family="dcap", sha256=certificates[-1].sha256, source="here"
    )
    return verify_chain(
        certificates,
        num_certificates=2,
        family="dcap",
        anchors=TrustAnchors(anchors=(anchor,)),
        what="chain",
    )


def test_rsa_signs_with_pss_over_the_bytes_received() -> None:
    """Serial number 0 gives no warning (warnings are errors here) and is read as 0."""
    chain_pem = _rsa_chain(_PSS, hashes.SHA384())

    assert _verify_rsa(chain_pem).leaf.serial_number == 0
    one = parse_chain(chain_pem, what="chain", key_kinds={"p256", "rsa"})[0].inner
    with pytest.raises(AttestationError) as caught:  # the twin that was shown to the library
        _verify_rsa(pem((one,)) + chain_pem[chain_pem.index(b"-----BEGIN", 1) :])
    assert caught.value.code == "chain_signature"


@pytest.mark.parametrize(
    ("pss", "algorithm"),
    [
        (None, hashes.SHA384()),
        (padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256()),
        (padding.PSS(padding.MGF1(hashes.SHA384()), 32), hashes.SHA384()),
        (padding.PSS(padding.MGF1(hashes.SHA256()), 48), hashes.SHA384()),
        (padding.PSS(padding.MGF1(hashes.SHA384()), 48), hashes.SHA256()),
    ],
)
def test_rsa_signs_in_no_other_way(
    pss: padding.PSS | None, algorithm: hashes.SHA256 | hashes.SHA384
) -> None:
    with pytest.raises(AttestationError) as caught:
        _verify_rsa(_rsa_chain(pss, algorithm))
    assert caught.value.code == "chain_signature"


@pytest.mark.parametrize(("pss", "code"), [(_PSS, None), (None, "crl_signature")])
def test_a_crl_is_signed_in_the_same_way(pss: padding.PSS | None, code: str | None) -> None:
    builder = x509.CertificateRevocationListBuilder().issuer_name(_name("root"))
    builder = builder.last_update(AT - _DAY).next_update(AT + _DAY)
    crl = builder.sign(_RSA_3072, hashes.SHA384(), rsa_padding=pss).public_bytes(Encoding.DER)
    root = parse_certificate(
        _issue("root", "ca", is_ca=True, key=_RSA_3072).public_bytes(Encoding.DER),
        what="root",
        key_kinds={"rsa"},
    )

    if code is None:
        assert verify_crl(crl, issuer=root, what="CRL").last_update == AT - _DAY
        return
    with pytest.raises(AttestationError) as caught:
        verify_crl(crl, issuer=root, what="CRL")
    assert caught.value.code == code


def test_names_in_other_string_types_are_the_same_names() -> None:
    """[RFC 5280 sec. 7.1]"""
    printable = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "ca", _type=_ASN1Type.PrintableString)]
    )
    leaf = _issue("leaf", "ca", is_ca=False, issuer_name=printable)

    assert _verify((leaf, _CA, _ROOT)).leaf.issuer == _CA.subject


def test_sizes_are_bounded() -> None:
    large = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), bytes(17_000))
    certificate = _issue(
        "leaf",
        "ca",
        is_ca=False,
        sign=lambda b: b.add_extension(large, critical=False).sign(_KEYS["ca"], hashes.SHA256()),
    )

    assert _parse_code(pem((certificate,))) == "format"
    assert _crl_code(_crl().public_bytes(Encoding.PEM) + b" " * 1024 * 1024) == "format"


def test_curves_sign_with_the_hashes_of_their_family() -> None:
    other = _issue("leaf", "ca", is_ca=False, sign=lambda b: b.sign(_KEYS["ca"], hashes.SHA512()))

    assert _code((other, _CA, _ROOT)) == "chain_signature"


def test_odd_serial_numbers_versions_and_algorithms_are_refused() -> None:
    data = _LEAF.public_bytes(Encoding.DER)
    negative = data.replace(_SERIAL + b"\7", _SERIAL + b"\x80", 1)
    version_1 = data.replace(_SERIAL, b"\xa0\3\2\1\0\2\1", 1)
    at = data.rindex(bytes.fromhex("06082a8648ce3d040302"))
    two_algorithms = data[: at + 9] + b"\x03" + data[at + 10 :]

    for changed in (negative, version_1, two_algorithms, b"", data[:20], data + b"\0"):
        assert changed != data
        with pytest.raises(AttestationError) as caught:
            parse_certificate(changed, what="leaf")
        assert caught.value.code == "format"


def test_names_that_could_forge_output_are_refused() -> None:
    assert _parse_code(pem((_issue("\x1b[2J", "ca", is_ca=False, key=_KEYS["leaf"]),))) == "format"


def test_nul_bytes_after_the_chain_are_a_vendors_habit() -> None:
    assert len(parse_chain(pem((_LEAF, _CA)) + b"\0", what="chain")) == 2


def _crl(
    *,
    issuer: str = "ca",
    extension: x509.ExtensionType | None = None,
    is_critical: bool = True,
    serials: Sequence[int] = (),
) -> x509.CertificateRevocationList:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(_name(issuer))
        .last_update(AT - _DAY)
        .next_update(AT + _DAY)
    )
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(AT)
        builder = builder.add_revoked_certificate(entry.build())
    if extension is not None:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(_KEYS["ca"], hashes.SHA256())


def _parsed(certificate: x509.Certificate) -> Certificate:
    return parse_chain(pem((certificate,)), what="issuer")[0]


def _crl_code(data: bytes, issuer: x509.Certificate = _CA) -> str:
    with pytest.raises(AttestationError) as caught:
        verify_crl(data, issuer=_parsed(issuer), what="CRL")
    return caught.value.code


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_crls_are_read_in_both_encodings(encoding: Encoding) -> None:
    listed = verify_crl(
        _crl(serials=[7, 8]).public_bytes(encoding), issuer=_parsed(_CA), what="CRL"
    )
    empty = verify_crl(_crl().public_bytes(encoding), issuer=_parsed(_CA), what="CRL")

    require_unrevoked(empty, _parsed(_LEAF))
    with pytest.raises(AttestationError) as caught:
        require_unrevoked(listed, _parsed(_LEAF))
    assert caught.value.code == "certificate_revoked"


def test_each_rule_of_a_crl() -> None:
    der = _crl().public_bytes(Encoding.DER)
    indirect = x509.IssuingDistributionPoint(None, None, False, False, None, True, False)
    no_crl_sign = _issue("ca", "root", is_ca=False, signs_certificates=True)

    assert _crl_code(b"") == "crl_missing"
    assert _crl_code(b"\x30\0") == "format"
    assert _crl_code(b"MIIB") == "format"
    assert _crl_code(der, issuer=_ROOT) == "crl_issuer"
    assert _crl_code(der, issuer=no_crl_sign) == "crl_issuer"
    assert _crl_code(flip_bit(der, 8 * len(der) - 1)) == "crl_signature"
    assert _crl_code(_crl(extension=indirect).public_bytes(Encoding.DER)) == "format"


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


def test_a_revocation_list_may_be_numbered() -> None:
    numbered = _crl(extension=x509.CRLNumber(7), is_critical=False).public_bytes(Encoding.DER)

    require_unrevoked(verify_crl(numbered, issuer=_parsed(_CA), what="CRL"), _parsed(_LEAF))


def test_a_crl_is_current_from_its_update_until_just_before_the_next() -> None:
    crl = verify_crl(_crl().public_bytes(Encoding.DER), issuer=_parsed(_CA), what="CRL")

    require_crl_current(crl, AT - _DAY)
    for moment, code in (
        (AT - _DAY - timedelta(seconds=1), "collateral_not_yet_valid"),
        (AT + _DAY, "crl_expired"),
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
    signature = _KEYS["ca"].sign(endless, ec.ECDSA(hashes.SHA256()))
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
        .last_update(AT - _DAY)
        .next_update(AT + _DAY)
        .sign(_KEYS["ca"], hashes.SHA256())
    )

    data = crl.public_bytes(Encoding.DER)
    assert _parsed(_CA).subject_der not in data
    assert verify_crl(data, issuer=_parsed(_CA), what="CRL").last_update == AT - _DAY


def test_known_certificates_are_those_of_the_same_bytes() -> None:
    root, other = _parsed(_ROOT), _parsed(_issue("root", "root", is_ca=True, path_length=1))
    data = pem((_CA, _ROOT))

    ca, found = parse_chain(data, what="chain", known=(other, root))

    assert found is root
    assert ca.common_name == "ca"
    assert parse_chain(data, what="chain", known=(other,))[1] is not other
