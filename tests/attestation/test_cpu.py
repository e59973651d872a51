"""Which claims of a CPU TEE does a verdict show, and what does it warn of or leave open?"""

import hashlib
from dataclasses import replace

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.cpu import CpuClaims
from attestation.fake import FakeTee
from attestation.fake.platform import FakePlatform
from attestation.nitro.cpu import verify_cpu as verify_nitro
from attestation.snp.cpu import verify_azure
from attestation.snp.cpu import verify_cpu as verify_snp
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import GENOA, MILAN, ProductLine
from attestation.tdx.cpu import _facts
from attestation.tdx.cpu import verify_cpu as verify_tdx
from attestation.tdx.quote import EnclaveReport, _parse_enclave_report
from attestation.tdx.verifier import TdxClaims
from tests.attestation.nitro import samples as nitro
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.samples import AT
from tests.attestation.snp.azure_samples import HCL
from tests.support import fake_snp
from tests.support.fake_snp import FakeSnp

_DATA = bytes(range(64))
_NO_CRL = "revocation: no CRL of AMD's root says that the issuing CA is not revoked"
_AZURE = "freshness: on Azure only a TPM quote by the key in the blob could answer a nonce"
_MILAN = "product line Milan, whose endorsement keys could be extracted"


def _tdx(tee: FakeTee) -> CpuClaims:
    quote, collateral = tee.attest(_DATA, at=AT)
    return verify_tdx(quote, collateral, anchors=load_anchors(), at=AT, log=CheckLog())


def test_what_is_told_of_a_quote() -> None:
    claims = _tdx(FakeTee())

    assert (claims.section, claims.tee) == ("tdx", "tdx")
    assert (claims.shortfall, claims.not_covered) == ("", ())
    assert claims.report_data == _DATA
    assert {name: claims.facts[name] for name in list(claims.facts)[:8]} == {
        "tee": "tdx",
        "fmspc": "fa4e00000000",
        "ppid": hashlib.sha384(b"starshade FAKE PPID").digest()[:16].hex(),
        "tcb_status": "UpToDate",
        "tcb_date": "2025-05-14T00:00:00Z",
        "tcb_evaluation_data_number": 20,
        "advisories": (),
        "report_data": _DATA.hex(),
    }
    assert list(claims.facts)[8:] == [
        *("mrtd", "mrseam", "rtmr0", "rtmr1", "rtmr2", "rtmr3"),
        *("td_attributes", "xfam"),
    ]
    assert claims.facts["td_attributes"] == "0000001000000000"
    assert claims.facts["xfam"] == "e702060000000000"


def test_what_is_told_of_an_enclave() -> None:
    claims = _tdx(FakeTee()).verified
    assert isinstance(claims, TdxClaims)
    quoted = replace(claims, tee="sgx", report=_enclave_report())

    facts = _facts(quoted)
    assert facts["tee"] == "sgx"
    assert list(facts)[8:] == ["mrenclave", "mrsigner"]


def _enclave_report() -> EnclaveReport:
    raw = FakePlatform().qe_report(_DATA)
    return _parse_enclave_report(raw)


@pytest.mark.parametrize("status", ["UpToDate", "OutOfDate", "ConfigurationNeeded"])
def test_a_status_that_is_not_the_best_is_a_shortfall(status: str) -> None:
    want = "" if status == "UpToDate" else f"TCB status {status}"

    assert _tdx(FakeTee(platform=FakePlatform(tcb_status=status))).shortfall == want


@pytest.mark.parametrize("product", [GENOA, MILAN])
@pytest.mark.parametrize("has_crl", [True, False])
def test_what_is_told_of_a_report(product: ProductLine, has_crl: bool) -> None:
    machine = FakeSnp(product=product)
    crl = machine.crl() if has_crl else None
    endorsements = SnpEndorsements(vek=machine.vek(), chain=machine.chain(), crl=crl)
    claims = verify_snp(
        machine.report(report_data=_DATA),
        endorsements,
        anchors=fake_snp.anchors(machine),
        at=fake_snp.AT,
        log=CheckLog(),
    )

    assert (claims.section, claims.tee, claims.report_data) == ("snp", "snp", _DATA)
    assert (claims.facts["tee"], claims.facts["product"]) == ("snp", product.name)
    assert claims.shortfall == (_MILAN if product is MILAN else "")
    assert claims.not_covered == (() if has_crl else (_NO_CRL,))


def test_what_is_told_of_an_azure_blob() -> None:
    machine = FakeSnp()
    endorsements = SnpEndorsements(vek=machine.vek(), chain=machine.chain(), crl=None)
    log = CheckLog()
    anchors = fake_snp.anchors(machine)
    claims = verify_azure(HCL, endorsements, anchors=anchors, at=fake_snp.AT, log=log)

    modulus = fake_snp.rsa_key("ak").public_key().public_numbers().n
    assert claims.facts["azure_ak_modulus"] == f"{modulus:x}"
    assert claims.not_covered == (_NO_CRL, _AZURE)
    names = [check.name for check in log.checks]
    assert (names[0], names[-1]) == ("hcl_format", "hcl_runtime")


def test_what_is_told_of_a_nitro_document() -> None:
    def verified(document: nitro.Document) -> CpuClaims:
        data = document.to_bytes()
        return verify_nitro(data, None, anchors=VERIFIER.anchors, at=nitro.AT, log=CheckLog())

    claims = verified(nitro.good_document())
    assert (claims.section, claims.tee) == ("nitro", "nitro")
    assert claims.report_data == nitro.NONCE
    assert (claims.facts["tee"], claims.facts["module_id"]) == ("nitro", "i-0-enc0")
    assert verified(nitro.with_members(drop=("nonce",))).report_data == b""
