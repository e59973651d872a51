"""Certificates at the edges of what is read: sizes, key lengths, names short and long."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from attestation.certificate import (
    MAX_CERTIFICATE_BYTES,
    MAX_CERTIFICATES,
    MAX_CHAIN_BYTES,
    Certificate,
    _plain_common_name,
    parse_certificate,
    parse_chain,
    subject_public_key_info,
)
from attestation.errors import AttestationError, MalformedEvidence
from tests.attestation.samples import AT
from tests.support.fake_snp import pem

_KEY = ec.derive_private_key(7, ec.SECP256R1())
_P256_OID = bytes.fromhex("2a8648ce3d030107")


def _name(*texts: str) -> x509.Name:
    """A common name, then as many organisations as it takes."""
    oids = [NameOID.COMMON_NAME] + [NameOID.ORGANIZATION_NAME] * len(texts)
    return x509.Name(map(x509.NameAttribute, oids, texts))


def _issue(
    subject: x509.Name | None = None,
    issuer: x509.Name | None = None,
    public_key: rsa.RSAPublicKey | None = None,
    extra_bytes: int = 0,
) -> bytes:
    subject = _name("leaf") if subject is None else subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or _name("ca"))
        .public_key(public_key or _KEY.public_key())
        .serial_number(7)
        .not_valid_before(AT - timedelta(days=1))
        .not_valid_after(AT + timedelta(days=1))
    )
    if extra_bytes:
        extra = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), bytes(extra_bytes))
        builder = builder.add_extension(extra, critical=False)
    certificate = builder.sign(_KEY, hashes.SHA256(), ecdsa_deterministic=True)
    return certificate.public_bytes(Encoding.DER)


def _read(data: bytes) -> Certificate:
    return parse_certificate(data, what="it", key_kinds=frozenset({"p256", "rsa"}))


def _code(read: Callable[[bytes], object], data: bytes) -> str | None:
    try:
        read(data)
    except AttestationError as err:
        return err.code
    return None


def _chain(data: bytes) -> Sequence[Certificate]:
    return parse_chain(data, what="chain")


@pytest.mark.parametrize("num_organisations", range(6))
@pytest.mark.parametrize("length", [1, 2, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 63, 64])
def test_names_of_any_length_are_found_in_the_bytes(num_organisations: int, length: int) -> None:
    """One, two and three bytes of DER length, and each edge between them."""
    subject = _name("leaf", *("o" * length for _ in range(num_organisations)))
    issuer = _name("ca", *("p" * length for _ in range(num_organisations)))

    certificate = _read(_issue(subject, issuer))

    assert certificate.subject_der == subject.public_bytes()
    assert certificate.issuer_der == issuer.public_bytes()
    assert (certificate.subject, certificate.issuer) == (subject, issuer)


_O, _CN, _C = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME, NameOID.COUNTRY_NAME
Attribute = tuple[str, x509.ObjectIdentifier] | tuple[str, x509.ObjectIdentifier, _ASN1Type]
_PLAIN_NAMES: dict[str, tuple[Attribute, ...]] = {
    "": (),
    "no": (("no", _CN),),
    "after": (("o" * 64, _O), ("XX", _C), ("after", _CN)),
    "first": (("first", _CN), ("second", _CN), ("oo", _O)),
    "n" * 64: (("n" * 64, _CN),),
    "printable": (("printable", _CN, _ASN1Type.PrintableString),),
    "utf8": (("utf8", _CN, _ASN1Type.UTF8String),),
    "serial": (("777", NameOID.SERIAL_NUMBER), ("serial", _CN)),
}
_OTHER_NAMES: dict[str, tuple[Attribute, ...]] = {
    "n": (("n", _CN),),
    "\xfc\xfc": (("\xfc\xfc", _CN),),
    "n" * 65: (("n" * 65, _CN),),
    "n" * 130: (("n" * 130, _CN),),
    "after": (("o", _O), ("after", _CN)),
    "country": (("country", _CN), ("XXX", _C)),
    "wide": (("wide", _CN, _ASN1Type.BMPString),),
    "teletex": (("teletex", _CN, _ASN1Type.T61String),),
    "mail": (("mail", _CN), ("a@b", NameOID.EMAIL_ADDRESS)),
    "domain": (("dc", NameOID.DOMAIN_COMPONENT), ("domain", _CN)),
}


def _of(*attributes: Attribute) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(oid, text, *kind, _validate=False) for text, oid, *kind in attributes]
    )


@pytest.mark.parametrize("name", _PLAIN_NAMES)
def test_a_plain_name_is_read_in_place(name: str) -> None:
    subject = _of(*_PLAIN_NAMES[name])

    assert _plain_common_name(subject.public_bytes()) == name
    assert _read(_issue(subject)).common_name == name


@pytest.mark.filterwarnings("ignore:Attribute's length must be", "ignore:Country names")
@pytest.mark.parametrize("name", _OTHER_NAMES)
def test_any_other_name_is_left_to_the_library(name: str) -> None:
    subject = _of(*_OTHER_NAMES[name])

    assert _plain_common_name(subject.public_bytes()) is None
    assert _read(_issue(subject)).common_name == name


def test_two_names_of_one_kind_in_a_set_are_left_to_the_library() -> None:
    pair = x509.RelativeDistinguishedName([*_of(("aa", _CN), ("oo", _O))])
    subject = x509.Name([pair])

    assert _plain_common_name(subject.public_bytes()) is None
    assert _read(_issue(subject)).common_name == "aa"


@pytest.mark.parametrize("tag", [0x00, 0x0B, 0x0D, 0x12, 0x14, 0x16, 0x1E, 0x58])
def test_a_plain_name_is_a_string_of_two_kinds(tag: int) -> None:
    name = bytearray(_of(("name", _CN)).public_bytes())
    name[11] = tag

    assert _plain_common_name(bytes(name)) is None


@pytest.mark.parametrize("offset", [3, 5, 6, 7, 8, 9, 11, 12])
def test_a_plain_name_has_one_form(offset: int) -> None:
    """Each byte before the text but its kind's, and the tags that the library has seen to."""
    name = bytearray(_of(("name", _CN)).public_bytes())
    name[offset] ^= 0x40

    assert _plain_common_name(bytes(name)) is None


def test_a_certificate_without_a_common_name_has_none() -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o")])

    assert _read(_issue(subject)).common_name == ""


def test_a_name_that_cannot_be_read_is_a_refusal_when_it_is_needed() -> None:
    data = _issue(_name("leaf"), _name("unreadable"))
    certificate = _read(data.replace(b"unreadable", b"\xff" * 10))

    with pytest.raises(AttestationError) as caught:
        certificate.is_issued_in_name_of(_read(_issue()))
    assert caught.value.code == "format"


@pytest.mark.parametrize(
    ("num_bits", "code"),
    [(3071, "bad_key"), (3072, None), (8191, None), (8192, None), (8193, "bad_key")],
)
def test_rsa_keys_have_3072_to_8192_bits(num_bits: int, code: str | None) -> None:
    key = rsa.RSAPublicNumbers(65537, (1 << num_bits) - 1).public_key()

    assert _code(_read, _issue(public_key=key)) == code


def test_a_certificate_has_at_most_16_kib() -> None:
    guess = 16384 - len(_issue())
    exact, over = _sized_exactly(16384, guess), _sized_exactly(16385, guess)

    assert MAX_CERTIFICATE_BYTES == 16384
    assert _code(_read, exact) is None
    assert _code(_read, over) == "format"


def _sized_exactly(size_bytes: int, guess: int) -> bytes:
    """Signatures differ by a byte or two, so it takes a few attempts."""
    for subject in (_name("a"), _name("bb"), _name("ccc")):
        for extra_bytes in range(guess - 30, guess + 10):
            data = _issue(subject, extra_bytes=extra_bytes)
            if len(data) == size_bytes:
                return data
    raise AssertionError(f"no certificate of {size_bytes} bytes")


def test_a_chain_has_at_most_64_kib_and_8_certificates() -> None:
    one = pem(_issue())

    def padded(size_bytes: int) -> bytes:
        return one + b"\n" * (size_bytes - 2 * len(one.strip()) - 1) + one.strip()

    assert (MAX_CHAIN_BYTES, MAX_CERTIFICATES) == (65536, 8)
    assert len(padded(65536)) == 65536
    assert _code(_chain, padded(65536)) is None
    assert _code(_chain, padded(65537)) == "format"
    assert len(_chain(one * 8)) == 8
    assert _code(_chain, one * 9) == "format"


def test_only_white_space_and_nuls_may_surround_a_chain() -> None:
    one = pem(_issue())

    assert len(_chain(b" \n" + one + b"\n \0\0")) == 1
    for data in (one + b"X", one + b"\0X", b"\0" + one, b"X" + one, one + b"-"):
        assert _code(_chain, data) == "format"


@pytest.mark.parametrize("body", [b"A", b"AA=", b"AA==BBBB"])
def test_the_body_of_pem_is_base64_to_its_end(body: bytes) -> None:
    with pytest.raises(MalformedEvidence, match="not base64") as caught:
        _chain(b"-----BEGIN CERTIFICATE-----\n" + body + b"\n-----END CERTIFICATE-----\n")
    assert caught.value.code == "format"


def test_the_key_of_a_certificate_of_any_kind() -> None:
    small = rsa.RSAPublicNumbers(65537, (1 << 1024) - 1).public_key()
    for data, key in ((_issue(public_key=small), small), (_issue(), _KEY.public_key())):
        want = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        assert subject_public_key_info(data, what="it") == want
    unknown = _issue().replace(_P256_OID, _P256_OID[:-1] + b"\x7f")

    assert _code(lambda data: subject_public_key_info(data, what="it"), unknown) == "format"


@pytest.mark.parametrize(
    ("serial", "is_critical", "code"),
    [
        ("01", False, None),
        ("0080", False, None),
        ("00", False, "format"),
        ("0000", False, "format"),
        ("80", False, "format"),
        ("ff01", True, "format"),
    ],
)
def test_the_issuers_serial_number_is_positive(
    serial: str, is_critical: bool, code: str | None
) -> None:
    """Of an AuthorityKeyIdentifier; the library would only warn of it."""
    issuer = "a103820161"  # a DNS name
    fields = f"800401020304{issuer}82{len(serial) // 2:02x}{serial}"
    value = f"30{len(fields) // 2:02x}{fields}"
    assert _read_code(_with_authority_key(bytes.fromhex(value), is_critical)) == (
        "format" if is_critical else code  # an unknown critical extension by itself
    )


def test_only_an_extension_names_an_issuer() -> None:
    """The octets of the OID may be part of any text, though not time and again."""
    oid = "\x06\x03U\x1d#"
    assert _read_code(_issue(_name("leaf", oid + "\x04\x05" + "0\x03" + "x\x01y"))) is None
    assert _read_code(_issue(_name("leaf", *[oid] * 4))) is None
    assert _read_code(_issue(_name("leaf", *[oid] * 5))) == "format"


def _with_authority_key(value: bytes, is_critical: bool) -> bytes:
    extension = x509.UnrecognizedExtension(ObjectIdentifier("2.5.29.35"), value)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name("leaf"))
        .issuer_name(_name("ca"))
        .public_key(_KEY.public_key())
        .serial_number(7)
        .not_valid_before(AT - timedelta(days=1))
        .not_valid_after(AT + timedelta(days=1))
        .add_extension(extension, critical=is_critical)
    )
    return builder.sign(_KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def _read_code(data: bytes) -> str | None:
    try:
        parse_certificate(data, what="test")
    except AttestationError as err:
        return err.code
    return None
