"""Chains and revocation lists at the edges: sizes, strange names, an order that is told apart."""

from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.anchors import load_anchors
from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.x509 import MAX_CRL_BYTES, Certificate, parse_certificate, verify_chain, verify_crl
from tests.attestation.samples import AT

_TEE = FakeTee()
_CRL = _TEE.attest(bytes(64), at=AT)[1].root_ca_crl


def _parsed(certificate: x509.Certificate) -> Certificate:
    return parse_certificate(certificate.public_bytes(Encoding.DER), what="certificate")


_ROOT, _CA, _LEAF = _parsed(_TEE.pki.root), _parsed(_TEE.pki.pck_ca), _parsed(_TEE.pck)


def _crl_code(data: bytes) -> str | None:
    try:
        verify_crl(data, issuer=_ROOT, what="CRL")
    except AttestationError as err:
        return err.code
    return None


def test_a_crl_has_at_most_a_mebibyte() -> None:
    pem = x509.load_der_x509_crl(_CRL).public_bytes(Encoding.PEM)

    assert MAX_CRL_BYTES == 1048576
    assert _crl_code(pem.ljust(1048576, b"\n")) is None
    assert _crl_code(pem.ljust(1048577, b"\n")) == "format"


def test_a_crl_whose_issuer_cannot_be_read_is_no_crl() -> None:
    name = b"Starshade FAKE Root CA"
    assert _CRL.count(name) == 1

    assert _crl_code(_CRL.replace(name, b"\xff" * len(name))) == "format"


@pytest.mark.parametrize("foreign", ["chain_order", "chain_signature"])
def test_a_wrong_order_is_told_apart_from_a_foreign_issuer(
    foreign: Literal["chain_order", "chain_signature"],
) -> None:
    def code(*certificates: Certificate) -> str:
        with pytest.raises(AttestationError) as caught:
            verify_chain(
                certificates,
                num_certificates=len(certificates),
                family="dcap",
                anchors=load_anchors(),
                what="chain",
                foreign_issuer=foreign,
            )
        return caught.value.code

    assert code(_CA, _LEAF, _ROOT) == "chain_order"  # the CA's issuer is the root, further up
    assert code(_LEAF, _ROOT) == foreign  # the leaf's issuer is nowhere
    assert code(_ROOT, _CA, _LEAF) == "chain_order"
