"""A Nitro document's signer: what its certificate must say, and when the document was made."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nitro.verifier import NitroClaims
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nitro.samples import AT, INSTANCE, LEAF, good_document, leaf, with_chain
from tests.support import p384


def _verify(data: bytes, at: datetime = AT) -> NitroClaims:
    return VERIFIER.verify(data, at=at, log=CheckLog())


def _under(certificate: x509.Certificate, **members: Any) -> bytes:
    document = with_chain(lambda chain: chain.__setitem__(0, certificate))
    document.members.update(members)
    return document.to_bytes()


def test_what_is_verified_is_shown_by_name() -> None:
    shown = dict(_verify(good_document().to_bytes()).fields())

    assert shown["trust_anchor"] == "nitro test root"
    assert shown["not_after"] == (AT + timedelta(hours=3)).isoformat()
    assert shown["module_id"] == "i-0-enc0"


@pytest.mark.parametrize(
    ("offset_s", "code"),
    [(-301, "certificate_time"), (-300, None), (0, None), (60, None), (61, "certificate_time")],
)
def test_a_document_is_made_from_the_first_to_the_last_second(
    offset_s: int, code: str | None
) -> None:
    certificate = leaf(not_after=AT + timedelta(seconds=60))
    made_at_ms = (int(AT.timestamp()) + offset_s) * 1000
    data = _under(certificate, timestamp=made_at_ms)

    if code is None:
        assert _verify(data).document.made_at == AT + timedelta(seconds=offset_s)
        return
    with pytest.raises(AttestationError) as caught:
        _verify(data)
    assert caught.value.code == code


def test_a_leaf_without_key_usage_signs_nothing() -> None:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(leaf().subject)
        .issuer_name(leaf().issuer)
        .public_key(p384.key(LEAF).public_key())
        .serial_number(7)
        .not_valid_before(AT - timedelta(minutes=5))
        .not_valid_after(AT + timedelta(hours=3))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(p384.key(INSTANCE), hashes.SHA384(), ecdsa_deterministic=True)
    )

    with pytest.raises(AttestationError) as caught:
        _verify(_under(certificate))
    assert caught.value.code == "signer_role"
