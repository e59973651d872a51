"""Chains and certificates that break one rule each, under a root that is pinned."""

import base64
import hashlib
import time
from collections.abc import Sequence
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
    KeyKind,
    VerifiedChain,
    parse_certificate,
    parse_chain,
    require_chain_current,
    verify_chain,
)
from tests.attestation.issuing import (
    CA,
    DAY,
    KEYS,
    LEAF,
    PSS,
    ROOT,
    RSA_2048,
    RSA_3072,
    issue,
    parsed,
)
from tests.attestation.samples import AT, flip_bit

_SERIAL = b"\xa0\3\2\1\2\2\1"  # version 3, then the header of a serial number of one byte
_UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\5\0")


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
    chain = _verify((LEAF, CA, ROOT))

    assert [c.common_name for c in chain.certificates] == ["leaf", "ca", "root"]
    assert (chain.anchor.name, chain.not_after) == ("root", AT + DAY)


def test_each_rule_of_the_chain() -> None:
    no_ca = issue("ca", "root", is_ca=False, signs_certificates=True)
    no_usage = issue("ca", "root", is_ca=True, signs_certificates=False)
    shallow_root = issue("root", "root", is_ca=True, path_length=0)
    forged = issue("leaf", "ca", is_ca=False).public_bytes(Encoding.DER)
    forged_leaf = x509.load_der_x509_certificate(flip_bit(forged, 8 * len(forged) - 1))

    assert _code((CA, ROOT)) == "chain"
    assert _code((LEAF, CA, CA, ROOT)) == "chain"
    assert _code((LEAF, no_ca, ROOT)) == "chain"
    assert _code((LEAF, no_usage, ROOT)) == "chain"
    assert _code((LEAF, CA, shallow_root)) == "chain"
    assert _code((CA, ROOT), num_certificates=2) == "chain"  # a CA is no leaf
    assert _code((CA, LEAF, ROOT)) == "chain_order"
    stray = issue("leaf", "stray", is_ca=False, sign=lambda b: b.sign(KEYS["ca"], hashes.SHA256()))
    assert _code((stray, CA, ROOT)) == "chain_order"
    assert _code((forged_leaf, CA, ROOT)) == "chain_signature"


def test_dates_are_inclusive_and_of_every_certificate() -> None:
    chain = _verify((LEAF, CA, ROOT))

    require_chain_current(chain, AT - DAY)
    require_chain_current(chain, AT + DAY)
    for outside in (AT - DAY - timedelta(seconds=1), AT + DAY + timedelta(seconds=1)):
        with pytest.raises(AttestationError) as caught:
            require_chain_current(chain, outside)
        assert caught.value.code == "certificate_time"


def test_certificates_that_are_not_understood_are_refused() -> None:
    p384 = issue("leaf", "ca", is_ca=False, key=ec.derive_private_key(9, ec.SECP384R1()))
    critical = issue("leaf", "ca", is_ca=False, critical=_UNKNOWN)
    good = pem((LEAF,))

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
    started = time.process_time()

    assert _parse_code(data) == "format"
    assert time.process_time() - started < 1.0


def test_only_the_kinds_of_key_that_were_asked_for() -> None:
    def encoded(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
        return issue("leaf", "ca", is_ca=False, key=key).public_bytes(Encoding.DER)

    p256, p384 = (encoded(ec.derive_private_key(9, c)) for c in (ec.SECP256R1(), ec.SECP384R1()))
    p521 = encoded(ec.derive_private_key(9, ec.SECP521R1()))
    keys: dict[KeyKind, bytes] = {"p256": p256, "p384": p384, "rsa": encoded(RSA_3072)}

    for kind, data in keys.items():
        assert parse_certificate(data, what="leaf", key_kinds={kind}).common_name == "leaf"
        others = keys.keys() - {kind}
        for refused in (data, p521, encoded(RSA_2048)):
            with pytest.raises(AttestationError) as caught:
                parse_certificate(refused, what="leaf", key_kinds=others)
            assert caught.value.code == "bad_key"
    with pytest.raises(AttestationError) as caught:
        parse_certificate(keys["rsa"], what="leaf", key_kinds={"rsa"}).ec_key  # noqa: B018
    assert caught.value.code == "bad_key"


def _rsa_chain(pss: padding.PSS | None, algorithm: hashes.SHA256 | hashes.SHA384) -> bytes:
    """A leaf with serial number 0 signed by an RSA root, as AMD's are."""

    def sign(builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(RSA_3072, algorithm, rsa_padding=pss)

    root = issue("root", "root", is_ca=True, key=RSA_3072, sign=sign)
    one = issue("leaf", "root", is_ca=False, serial_number=1, sign=sign)
    zero = one.tbs_certificate_bytes.replace(_SERIAL + b"\1", _SERIAL + b"\0", 1)
    signature = RSA_3072.sign(zero, pss or padding.PKCS1v15(), algorithm)
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
    chain_pem = _rsa_chain(PSS, hashes.SHA384())

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


def test_names_in_other_string_types_are_the_same_names() -> None:
    """[RFC 5280 sec. 7.1]"""
    printable = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "ca", _type=_ASN1Type.PrintableString)]
    )
    leaf = issue("leaf", "ca", is_ca=False, issuer_name=printable)

    assert _verify((leaf, CA, ROOT)).leaf.issuer == CA.subject


def test_the_size_of_a_certificate_is_bounded() -> None:
    large = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), bytes(17_000))
    certificate = issue(
        "leaf",
        "ca",
        is_ca=False,
        sign=lambda b: b.add_extension(large, critical=False).sign(KEYS["ca"], hashes.SHA256()),
    )

    assert _parse_code(pem((certificate,))) == "format"


def test_curves_sign_with_the_hashes_of_their_family() -> None:
    other = issue("leaf", "ca", is_ca=False, sign=lambda b: b.sign(KEYS["ca"], hashes.SHA512()))

    assert _code((other, CA, ROOT)) == "chain_signature"


def test_odd_serial_numbers_versions_and_algorithms_are_refused() -> None:
    data = LEAF.public_bytes(Encoding.DER)
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
    assert _parse_code(pem((issue("\x1b[2J", "ca", is_ca=False, key=KEYS["leaf"]),))) == "format"


def test_nul_bytes_after_the_chain_are_a_vendors_habit() -> None:
    assert len(parse_chain(pem((LEAF, CA)) + b"\0", what="chain")) == 2


def test_known_certificates_are_those_of_the_same_bytes() -> None:
    root, other = parsed(ROOT), parsed(issue("root", "root", is_ca=True, path_length=1))
    data = pem((CA, ROOT))

    ca, found = parse_chain(data, what="chain", known=(other, root))

    assert found is root
    assert ca.common_name == "ca"
    assert parse_chain(data, what="chain", known=(other,))[1] is not other
