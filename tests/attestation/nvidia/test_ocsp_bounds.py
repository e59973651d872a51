"""OCSP answers at the edges of what is taken, and those that only a careless builder makes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ObjectIdentifier

from attestation.certificate import KEY_KINDS, Certificate, parse_certificate
from attestation.errors import AttestationError
from attestation.nvidia.ocsp import VerifiedOcsp, verify_chain_ocsp, verify_ocsp
from attestation.nvidia.ocsp_answer import MAX_ANSWER_BYTES, parse_answer, select_answers
from tests.attestation.issuing import RSA_3072, issue
from tests.attestation.nvidia.test_ocsp import _rim_chain
from tests.vectors.nvidia_refs import pki
from tests.vectors.nvidia_refs.pki import AT, Ocsp, chain

_GOOD = Ocsp()
_SECOND = timedelta(seconds=1)
_SIGNER, _L3, _L2, _ = (
    parse_certificate(
        certificate.public_bytes(Encoding.DER), what="test", key_kinds=frozenset({"p384"})
    )
    for certificate in chain()
)


def _judge(data: bytes, *, at: datetime = AT, nonce: bytes | None = None) -> VerifiedOcsp:
    return verify_ocsp(data, subject=_SIGNER, issuer=_L3, at=at, nonce=nonce)


def _code(judge: Callable[[], object]) -> str | None:
    try:
        judge()
    except AttestationError as err:
        return err.code
    return None


def _padded(num_bytes: int) -> bytes:
    """The good answer in so many bytes: what says no more is in an extension of its responder."""

    def made(size: int) -> bytes:
        extra = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), bytes(size))
        responder = _GOOD.responder.make()
        return _with_certificate(responder, extra)

    size = num_bytes - len(made(0)) - 60
    while len(data := made(size)) < num_bytes:
        size += 1
    return data


def _with_certificate(certificate: x509.Certificate, extra: x509.UnrecognizedExtension) -> bytes:
    builder = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=chain()[0],
            issuer=chain()[1],
            algorithm=hashes.SHA384(),
            cert_status=ocsp.OCSPCertStatus.GOOD,
            this_update=AT,
            next_update=AT + timedelta(hours=1),
            revocation_time=None,
            revocation_reason=None,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, certificate)
        .certificates([certificate])
        .add_extension(extra, critical=False)
    )
    return builder.sign(pki.key(pki.RESPONDER), hashes.SHA384()).public_bytes(Encoding.DER)


def test_an_answer_has_at_most_16_kib() -> None:
    assert MAX_ANSWER_BYTES == 16384
    assert len(parse_answer(_sized(16384)).signature) > 90
    assert _code(lambda: parse_answer(_sized(16385))) == "format"


def _sized(num_bytes: int) -> bytes:
    """ECDSA's signatures differ by a byte or two, so it takes a few attempts."""
    for _ in range(200):
        data = _padded(num_bytes)
        if len(data) == num_bytes:
            return data
    raise AssertionError(f"no answer of {num_bytes} bytes")


def test_neither_signature_has_unused_bits() -> None:
    """Where the last bit is 0, the library takes a count of one unused bit as well."""
    seen = set()
    for number in range(20):
        end = AT + timedelta(days=number + 1)
        responder = replace(_GOOD.responder, not_after=end)
        answer = replace(_GOOD, responder=responder, nonce=bytes([number]) * 16).make()
        read = parse_answer(answer)
        for name, signature in (("own", read.signature), ("other", read.responder.signature)):
            if signature[-1] & 1:
                continue
            changed = bytearray(answer)
            changed[changed.index(signature) - 1] = 1
            with pytest.raises(AttestationError, match="not of whole octets") as caught:
                _judge(bytes(changed))
            assert caught.value.code == "format"
            seen.add(name)
    assert seen == {"own", "other"}


def test_extensions_that_are_not_critical_may_be_anything() -> None:
    extra = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\5\0")

    parse_answer(_with_certificate(_GOOD.responder.make(), extra))


def test_a_critical_nonce_is_understood() -> None:
    critical = replace(_GOOD, extra=x509.OCSPNonce(bytes(range(32))))

    assert _judge(critical.make(), nonce=bytes(range(32))).status == "good"


def test_an_answer_by_another_algorithm_is_none() -> None:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    responder = (
        x509.CertificateBuilder()
        .subject_name(chain()[1].subject)
        .issuer_name(chain()[1].subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(AT)
        .not_valid_after(AT + timedelta(days=1))
        .sign(key, None)
    )
    builder = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=chain()[0],
            issuer=chain()[1],
            algorithm=hashes.SHA384(),
            cert_status=ocsp.OCSPCertStatus.GOOD,
            this_update=AT,
            next_update=None,
            revocation_time=None,
            revocation_reason=None,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, responder)
        .certificates([responder])
    )

    assert _code(lambda: _judge(builder.sign(key, None).public_bytes(Encoding.DER))) == "format"


def test_a_nonce_to_ask_with_has_16_bytes_or_more() -> None:
    for num_bytes, code in ((15, "nonce_length"), (16, None)):
        nonce = bytes(range(num_bytes))
        answer = replace(_GOOD, nonce=nonce).make()
        assert _code(lambda a=answer, n=nonce: _judge(a, nonce=n)) == code  # type: ignore[misc]


def test_a_certificate_is_named_by_any_sha_2() -> None:
    for algorithm in (hashes.SHA256(), hashes.SHA384(), hashes.SHA512()):
        assert _judge(replace(_GOOD, id_hash=algorithm).make()).status == "good"


def test_a_hold_counts_only_where_it_is_allowed() -> None:
    held = replace(
        _GOOD,
        status=ocsp.OCSPCertStatus.REVOKED,
        reason=x509.ReasonFlags.certificate_hold,
    )
    answers = [held.make(), b"", b""]
    given = {"at": AT, "nonces": (None, None, None)}

    assert _code(lambda: verify_chain_ocsp(_rim_chain(), answers, **given)) == "certificate_revoked"  # type: ignore[arg-type]


def test_a_responder_is_current_at_both_its_ends() -> None:
    first, last = AT - timedelta(minutes=30), AT + timedelta(minutes=30)
    responder = replace(_GOOD.responder, not_before=first, not_after=last)
    answer = replace(_GOOD, responder=responder).make()

    for at, code in (
        (first - _SECOND, "certificate_time"),
        (first, None),
        (last, None),
        (last + _SECOND, "certificate_time"),
    ):
        assert _code(lambda at=at: _judge(answer, at=at)) == code  # type: ignore[misc]


def test_an_answer_is_not_from_before_it_was_made() -> None:
    """producedAt counts as well, where it is later than thisUpdate."""
    later = AT - timedelta(minutes=10)
    made = replace(_GOOD, produced_at=later).make()

    assert _code(lambda: _judge(made, at=later - _SECOND)) == "collateral_not_yet_valid"
    assert _judge(made, at=later).status == "good"


def test_a_responder_has_a_key_of_ours() -> None:
    wide = replace(_GOOD.responder, curve=ec.SECP521R1(), key_name="wide")
    assert _code(lambda: _judge(replace(_GOOD, responder=wide, signing_key="wide").make())) == (
        "bad_key"
    )


def test_a_responder_whose_key_is_no_point_is_malformed() -> None:
    answer = _GOOD.make()
    numbers = parse_answer(answer).responder.public_key()
    assert isinstance(numbers, ec.EllipticCurvePublicKey)
    y = numbers.public_numbers().y.to_bytes(48, "big")
    broken = answer.replace(y, y[:-1] + bytes([y[-1] ^ 1]))

    assert _code(lambda: _judge(broken)) == "format"


def test_answers_are_looked_for_under_keys_on_curves_alone() -> None:
    assert isinstance(RSA_3072, rsa.RSAPrivateKey)
    by_rsa = parse_certificate(
        issue("rsa", "ca", is_ca=True, key=RSA_3072).public_bytes(Encoding.DER),
        what="test",
        key_kinds=KEY_KINDS,
    )
    device: tuple[Certificate, ...] = (_SIGNER, _SIGNER, by_rsa)

    assert _code(lambda: select_answers([_GOOD.make()], device)) == "bad_key"
    assert select_answers([_GOOD.make()], (_SIGNER, _SIGNER, _L3)) == (_GOOD.make(),)
    assert select_answers([_GOOD.make()], (_SIGNER, _L3, _L2)) == (b"",)
