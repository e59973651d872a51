"""What the verification of an Intel quote tells step by step, and what no policy shows alone."""

import hashlib
import json
import struct
from dataclasses import replace
from datetime import datetime, timedelta
from unittest.mock import patch

import pytest

from attestation.anchors import load_anchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.fake import pki as fake_pki
from attestation.fake.attester import _CERT_TYPE_PCK_CHAIN, _CERT_TYPE_QE_REPORT, _typed
from attestation.fake.pki import PCK_NAME, TCB_SIGNER_NAME, pem
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.verifier import TdxClaims, TdxVerifier
from attestation.x509 import verify_chain
from tests.attestation.samples import AT, resign_qe_identity, resign_tcb_info
from tests.attestation.tdx.td15 import Td15Tee

_REPORT_DATA = bytes(range(64))
_NO_POINT = b"\1" * 64


def _verify(
    quote: bytes, collateral: TdxCollateral | None, log: CheckLog | None = None, at: datetime = AT
) -> TdxClaims:
    log = log or CheckLog()
    return TdxVerifier(anchors=load_anchors()).verify(quote, collateral, at=at, log=log)


def test_every_step_is_in_the_log_by_its_name_in_order() -> None:
    """These names are what a verdict shows, and what a dashboard counts."""
    log = CheckLog()

    _verify(*Td15Tee().attest(_REPORT_DATA, at=AT), log)

    assert [(check.name, check.outcome) for check in log.checks] == [
        (name, "pass")
        for name in (
            "quote_format",
            "endorsements",
            "pck_chain",
            "revocation",
            "tcb_info",
            "qe_identity",
            "platform_match",
            "qe_report",
            "quote_signature",
            "dates",
            "tdx_module",
            "tcb_level",
            "tdx_module_now",
        )
    ]


def test_collateral_is_as_old_as_the_older_of_the_two() -> None:
    tee = FakeTee()
    quote, good = tee.attest(_REPORT_DATA, at=AT)
    info, identity = json.loads(good.tcb_info), json.loads(good.qe_identity)
    older = datetime.fromisoformat(info["issueDate"]) - timedelta(days=3)
    text = f"{older:%Y-%m-%dT%H:%M:%SZ}"

    by_info = resign_tcb_info(tee, json.dumps(info | {"issueDate": text}))(good)
    by_identity = resign_qe_identity(tee, json.dumps(identity | {"issueDate": text}))(good)

    assert _verify(quote, by_info).collateral_issued == older
    assert _verify(quote, by_identity).collateral_issued == older


def test_the_evaluation_number_is_the_lower_of_the_two() -> None:
    tee = FakeTee()
    quote, good = tee.attest(_REPORT_DATA, at=AT)
    info, identity = json.loads(good.tcb_info), json.loads(good.qe_identity)
    number = info["tcbEvaluationDataNumber"]
    lower = {"tcbEvaluationDataNumber": number - 1}

    by_info = resign_tcb_info(tee, json.dumps(info | lower))(good)
    by_identity = resign_qe_identity(tee, json.dumps(identity | lower))(good)

    assert _verify(quote, good).tcb_evaluation_data_number == number
    assert _verify(quote, by_info).tcb_evaluation_data_number == number - 1
    assert _verify(quote, by_identity).tcb_evaluation_data_number == number - 1


def test_an_attestation_key_that_is_no_point_is_refused_although_the_qe_names_it() -> None:
    tee = FakeTee()
    quote, collateral = tee.attest(_REPORT_DATA, at=AT)
    auth = b"auth"
    qe_report = tee.platform.qe_report(hashlib.sha256(_NO_POINT + auth).digest() + bytes(32))
    certification = (
        qe_report
        + tee.pki.sign(PCK_NAME, qe_report)
        + struct.pack("<H", len(auth))
        + auth
        + _typed(_CERT_TYPE_PCK_CHAIN, pem((tee.pck, tee.pki.pck_ca, tee.pki.root)))
    )
    data = bytes(64) + _NO_POINT + _typed(_CERT_TYPE_QE_REPORT, certification)
    log = CheckLog()

    with pytest.raises(AttestationError) as caught:
        _verify(quote[:632] + struct.pack("<I", len(data)) + data, collateral, log)

    assert caught.value.code == "bad_key"
    assert log.checks[-1].name == "quote_signature"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Intel SGX PCK Platform CA", None),
        ("Intel SGX PCK Processor CA", None),
        ("Intel SGX PCK Processor CA 2", "signer_role"),
        ("Intel SGX Root CA", "signer_role"),
    ],
)
def test_pck_certificates_are_of_the_two_cas_for_them(name: str, code: str | None) -> None:
    with patch.object(fake_pki, "PCK_CA_NAME", name):
        quote, collateral = FakeTee().attest(_REPORT_DATA, at=AT)
    if code is None:
        _verify(quote, collateral)
        return
    with pytest.raises(AttestationError) as caught:
        _verify(quote, collateral)
    assert caught.value.code == code


def test_without_a_cache_and_with_one_the_messages_name_what_is_meant() -> None:
    tee = FakeTee()
    quote, good = tee.attest(_REPORT_DATA, at=AT)
    cases = {
        "root CRL": replace(good, root_ca_crl=b"\x30\x00"),
        "PCK CRL": replace(good, pck_crl=b"\x30\x00"),
        "TCB signing chain": replace(good, tcb_info_issuer_chain="", qe_identity_issuer_chain=""),
    }
    for what, collateral in cases.items():
        with pytest.raises(AttestationError) as caught:
            _verify(quote, collateral)
        assert str(caught.value).startswith(f"{what}:")


def test_the_date_that_has_passed_is_named() -> None:
    tee = FakeTee()
    quote, good = tee.attest(_REPORT_DATA, at=AT)
    for what, sign, text in (
        ("TCB info", resign_tcb_info, good.tcb_info),
        ("QE identity", resign_qe_identity, good.qe_identity),
    ):
        expired = json.dumps(json.loads(text) | {"nextUpdate": "2026-12-01T12:00:00Z"})
        with pytest.raises(AttestationError) as caught:
            _verify(quote, sign(tee, expired)(good))
        assert caught.value.code == "collateral_expired"
        assert str(caught.value).startswith(f"{what}:")


def test_each_signature_must_be_by_the_signer_of_tcb_info() -> None:
    tee = FakeTee()
    quote, good = tee.attest(_REPORT_DATA, at=AT)
    wrong = tee.pki.sign(PCK_NAME, good.tcb_info.encode())

    assert tee.pki.sign(TCB_SIGNER_NAME, good.tcb_info.encode()) == good.tcb_info_signature
    with pytest.raises(AttestationError) as caught:
        _verify(quote, replace(good, tcb_info_signature=wrong))
    assert caught.value.code == "tcb_info_signature"


def test_with_a_cache_the_chains_are_verified_once() -> None:
    quote, good = FakeTee().attest(_REPORT_DATA, at=AT)
    verifier = TdxVerifier(anchors=load_anchors(), cache=VerifiedCache())
    with patch("attestation.tdx.verifier.verify_chain", wraps=verify_chain) as verified:
        claims = [verifier.verify(quote, good, at=AT, log=CheckLog()) for _ in range(3)]

    assert claims[0] == claims[1] == claims[2]
    assert verified.call_count == 2


def test_no_two_kinds_of_objects_share_a_key_of_the_cache() -> None:
    cache = VerifiedCache()
    TdxVerifier(anchors=load_anchors(), cache=cache).verify(
        *FakeTee().attest(_REPORT_DATA, at=AT), at=AT, log=CheckLog()
    )

    assert sorted(str(key[0]) for key in cache._verified) == [
        "PCK CRL",
        "PCK chain",
        "PCK extension",
        "QE identity",
        "TCB info",
        "TCB signing chain",
        "attestation key",
        "root CRL",
    ]
