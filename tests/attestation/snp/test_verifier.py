"""Each rule of the verifier and of a policy refuses its one fault, and nothing else does."""

import hashlib
from typing import Any

import pytest

from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.facts import facts
from attestation.snp.verifier import SnpVerifier
from tests.attestation.snp.own_cases import CASES, Case
from tests.attestation.snp.samples import ANCHORS, evidence, failures, verify
from tests.support.fake_snp import AT, CHIP_ID, FakeSnp, anchors


def test_good_evidence_passes() -> None:
    assert failures(evidence()) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.change)
def test_one_fault_fails_one_check(case: Case) -> None:
    assert failures(case.make()) == ([] if case.code is None else [case.code])


def test_missing_certificates_are_a_failure() -> None:
    log = CheckLog()
    with pytest.raises(AttestationError) as caught:
        SnpVerifier(anchors=ANCHORS).verify(FakeSnp().report(), None, at=AT, log=log)
    assert caught.value.code == "endorsement_missing"
    assert log.checks[-1].code == "endorsement_missing"


def test_claims_say_what_was_verified() -> None:
    claims = verify(evidence())
    masked = verify(evidence(report=FakeSnp().report(chip_id=bytes(64))))
    vlek = verify(evidence(FakeSnp(kind="VLEK")))

    assert (claims.product.name, claims.anchor.name) == ("Genoa", "fake-ark-genoa")
    assert claims.report_data == b"\3" * 64
    assert (claims.chip_id, masked.chip_id, vlek.chip_id) == (CHIP_ID, CHIP_ID, None)
    assert facts(vlek)["csp_id"] == "CN=fake.provider.example"
    assert facts(claims)["reported_tcb"] == "boot_loader=10 tee=1 snp=27 microcode=84 fmc=0"


def test_a_verdict_ends_with_the_first_of_its_endorsements() -> None:
    tee = FakeSnp()
    soon = AT.replace(day=2)

    assert verify(evidence(crl=tee.crl(next_update=soon))).not_after == soon
    assert verify(evidence(FakeSnp(vek_not_after=soon))).not_after == soon


def test_without_a_crl_the_log_says_that_revocation_was_not_looked_at() -> None:
    log = CheckLog()
    claims = verify(evidence(crl=None), log)

    assert not claims.is_revocation_checked
    assert [c.outcome for c in log.checks if c.name == "revocation"] == ["not_applicable"]


@pytest.mark.parametrize("name", ["ARK-Naples", "Genoa", "ARK-Genoa2"])
def test_a_pinned_root_that_is_no_product_lines_ark(name: str) -> None:
    tee = FakeSnp(root_name=name)
    with pytest.raises(AttestationError) as caught:
        verify(evidence(tee), trusted=anchors(tee))
    assert caught.value.code == "signer_role"


def test_every_step_is_in_the_log_by_its_name_in_order() -> None:
    """These names are what a verdict shows, and what a dashboard counts."""
    log = CheckLog()

    verify(evidence(), log)

    assert [check.name for check in log.checks] == [
        "report_format",
        "endorsements",
        "vek_chain",
        "vek_identity",
        "revocation",
        "signing_key",
        "report_signature",
        "product",
        "chip",
        "reported_tcb",
        "dates",
    ]


def test_each_tcb_is_the_one_of_its_name_and_the_reported_one_counts() -> None:
    tee = FakeSnp()
    tcbs: dict[str, Any] = {
        f"{name}_tcb": tee.tcb(microcode=84 - at)
        for at, name in enumerate(("current", "committed", "launch"), 1)
    }

    claims = verify(evidence(report=tee.report(**tcbs)))

    levels = (claims.current_tcb, claims.reported_tcb, claims.committed_tcb, claims.launch_tcb)
    assert [tcb.microcode for tcb in levels] == [83, 84, 82, 81]
    assert claims.signing_ca_sha256 == hashlib.sha256(tee.issuer()).hexdigest()


def test_a_vlek_names_no_chip_but_the_report_may() -> None:
    tee = FakeSnp(kind="VLEK")

    assert verify(evidence(tee, report=tee.report(chip_id=CHIP_ID))).chip_id == CHIP_ID
    assert verify(evidence(tee, report=tee.report(chip_id=bytes(64)))).chip_id is None


def test_no_two_kinds_of_objects_share_a_key_of_the_cache() -> None:
    given, cache = evidence(), VerifiedCache()
    endorsements = SnpEndorsements(vek=given.vek, chain=given.chain, crl=given.crl)
    SnpVerifier(anchors=ANCHORS, cache=cache).verify(
        given.report, endorsements, at=AT, log=CheckLog()
    )

    assert sorted(str(key[0]) for key in cache._verified) == ["ARK CRL", "VEK chain"]
