"""A tinfoil document is read strictly, and its certificate by the key alone."""

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.fake.pki import pem
from attestation.tinfoil import FORMAT_V3, parse_tinfoil
from tests.support import fake_snp

_CERTIFICATE = FakeTee().pki.root
_ENTRY = {"arch": "HOPPER", "certificate": "QUJD", "evidence": "REVG"}


def _document(**changes: Any) -> bytes:
    document = {
        "format": FORMAT_V3,
        "report_data": {
            "tls_key_fp": "11" * 32,
            "hpke_key": "22" * 32,
            "nonce": "33" * 32,
            "gpu_evidence_hash": "44" * 32,
        },
        "cpu": {"platform": "tdx", "report": base64.b64encode(b"quote").decode()},
        "gpu": {"evidences": [_ENTRY]},
        "certificate": pem((_CERTIFICATE,)).decode(),
    }
    return json.dumps({**document, **changes}).encode()


def _code(**changes: Any) -> str:
    with pytest.raises(AttestationError) as caught:
        parse_tinfoil(_document(**changes))
    return caught.value.code


def test_a_document_is_a_session() -> None:
    data = _document()
    session = parse_tinfoil(data, nras=b"token")
    gpu = data[data.index(b'{"evidences"') : data.index(b', "certificate": "---')]
    spki = _CERTIFICATE.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    assert (session.profile, session.label, session.cpu) == ("tinfoil-v3", "tdx", b"quote")
    assert session.stated.nonce == b"\x33" * 32
    assert session.stated.tls_key_sha256 == b"\x11" * 32
    assert session.stated.hpke_key == b"\x22" * 32
    assert session.stated.gpu_sha256 == b"\x44" * 32
    assert session.stated.switch_sha256 is None
    assert [(e.arch, e.cert_chain, e.report) for e in session.gpu] == [("HOPPER", b"ABC", b"DEF")]
    assert session.gpu_sha256 == hashlib.sha256(gpu).digest()
    assert session.switch_sha256 is None
    assert session.certificate_key_sha256 == hashlib.sha256(spki).digest()
    assert session.nras == b"token"


def test_a_document_of_a_whole_board() -> None:
    """As tinfoil's servers send it: switches, the service's own signature, nonces in entries."""
    switches = {"evidences": [{**_ENTRY, "arch": "LS10", "nonce": "55" * 32}]}
    stated = {
        "tls_key_fp": "11" * 32,
        "hpke_key": "22" * 32,
        "nonce": "33" * 32,
        "nvswitch_evidence_hash": "66" * 32,
    }
    data = _document(
        format="https://tinfoil.sh/predicate/attestation/v3",
        report_data=stated,
        cpu={"platform": "sev-snp", "report": "QUJD"},
        gpu=None,
        nvswitch=switches,
        signature="s",
        certificate=None,
    )
    session = parse_tinfoil(data)
    sent = json.dumps(switches).encode()

    assert session.label == "snp"
    assert session.stated.switch_sha256 == b"\x66" * 32
    assert session.stated.gpu_sha256 is None
    assert [(e.arch, e.report) for e in session.gpu] == [("LS10", b"DEF")]
    assert session.gpu_sha256 is None
    assert session.switch_sha256 == hashlib.sha256(sent).digest()
    assert session.certificate_key_sha256 is None


def test_which_part_of_a_document_is_wrong() -> None:
    for name in ("gpu", "nvswitch"):
        with pytest.raises(AttestationError, match=f"^{name}: not an object"):
            parse_tinfoil(_document(**{name: 1}))


def test_a_serial_number_of_zero_warns_nobody() -> None:
    """AMD's certificates have it; the library warns, and will one day refuse."""
    der = fake_snp.FakeSnp().vek()
    text = fake_snp.pem(der).decode()

    assert parse_tinfoil(_document(certificate=text)).certificate_key_sha256 is not None


@pytest.mark.parametrize("serial_number", [b"\x80", b"\xff"])
def test_a_certificate_with_a_negative_serial_number_is_refused(serial_number: bytes) -> None:
    der = _CERTIFICATE.public_bytes(Encoding.DER)
    at = der.index(b"\xa0\x03\x02\x01\x02\x02") + 7
    text = fake_snp.pem(der[:at] + serial_number + der[at + 1 :]).decode()

    assert _code(certificate=text) == "format"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"format": "https://tinfoil.sh/predicate/attestation/v2"}, "unsupported_version"),
        ({"cpu": {"platform": "sgx", "report": ""}}, "unsupported_tee"),
        ({"cpu": {"platform": "tdx"}}, "format"),
        ({"cpu": {"platform": "tdx", "report": "!"}}, "format"),
        ({"more": 1}, "format"),
        ({"report_data": {}}, "format"),
        ({"gpu": {"evidences": [{**_ENTRY, "arch": "AMPERE"}]}}, "format"),
        ({"gpu": {"evidences": [_ENTRY] * 17}}, "format"),
        ({"gpu": []}, "format"),
        ({"certificate": ""}, "format"),
        ({"certificate": "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----"}, "format"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], code: str) -> None:
    assert _code(**changes) == code
