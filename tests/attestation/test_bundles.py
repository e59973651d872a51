"""Bundles with SNP, GPUs and tokens: every part answers one nonce, and no part may be dropped."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.model import EvidenceBundle, GpuEndorsements, parse_bundle
from attestation.policy import load_policy
from tests.attestation.nvidia.device import hopper
from tests.attestation.samples import AT, failures
from tests.attestation.sessions import (
    all_anchors,
    bundle,
    gpu_entry,
    judge_bundle,
    relaxed,
    rims,
    token,
)
from tests.support import fake_snp
from tests.vectors.nvidia_refs.pki import chain


def test_cpu_gpu_and_token_are_accepted_together() -> None:
    result = judge_bundle(bundle((gpu_entry(),), token()))

    assert failures(result) == []
    assert {name: submodule.status for name, submodule in result.submods.items()} == {
        "cpu": "warning",  # simulated
        "gpu-0": "affirming",
        "nras": "affirming",
    }
    assert result.submods["gpu-0"].claims["ueid"] == str(0x2000)
    assert any(gap.startswith("gpu_relay") for gap in result.not_covered)
    assert any(gap.startswith("nras_keys") for gap in result.not_covered)


def test_a_bundle_survives_its_wire() -> None:
    sent = replace(
        bundle((gpu_entry(),), token()),
        gpu_endorsements=GpuEndorsements(rims=(b"<rim/>",), ocsp=(b"\x30",)),
    )

    assert parse_bundle(sent.to_json()) == sent


def test_an_snp_bundle_is_affirmed_and_survives_its_wire() -> None:
    sent = bundle(tee="snp")
    result = judge_bundle(parse_bundle(sent.to_json()))

    assert parse_bundle(sent.to_json()) == sent
    assert failures(result) == []
    assert (result.tier, result.claims["product"]) == ("affirming", "Genoa")


def test_an_snp_report_over_other_keys_fails() -> None:
    sent = bundle(tee="snp")
    other = fake_snp.FakeSnp().report(report_data=bytes(64))

    assert failures(judge_bundle(replace(sent, quote=other))) == ["report_data"]


def test_endorsements_of_another_family_are_none() -> None:
    sent = bundle(tee="snp")
    result = judge_bundle(replace(sent, collateral=bundle().collateral))

    assert failures(result) == ["endorsement_missing"]


def test_a_gpu_that_answers_another_nonce_fails() -> None:
    recorded = gpu_entry(nonce=bytes(32))

    assert failures(judge_bundle(bundle((recorded,)))) == ["nonce_mismatch"]


def test_a_gpu_that_is_swapped_after_the_quote_fails() -> None:
    sent = replace(bundle((gpu_entry(),)), gpu=(gpu_entry(hopper(1)),))

    assert failures(judge_bundle(sent)) == ["gpu_evidence_hash"]


def test_a_gpu_that_is_dropped_after_the_quote_fails() -> None:
    assert failures(judge_bundle(replace(bundle((gpu_entry(),)), gpu=()))) == ["gpu_evidence_hash"]


def test_the_same_gpu_twice_fails() -> None:
    assert failures(judge_bundle(bundle((gpu_entry(), gpu_entry())))) == ["topology"]


def test_a_forged_gpu_report_fails() -> None:
    entry = gpu_entry()
    forged = replace(entry, report=entry.report[:-1] + bytes([entry.report[-1] ^ 1]))

    assert failures(judge_bundle(bundle((forged,)))) == ["report_signature"]


def test_a_token_for_another_nonce_fails() -> None:
    result = judge_bundle(bundle((gpu_entry(),), token(nonce=bytes(32))))

    assert failures(result) == ["nonce_mismatch"]


def test_a_token_about_other_devices_fails() -> None:
    result = judge_bundle(bundle((gpu_entry(),), token(ueid="77")))

    assert failures(result) == ["hwid_mismatch"]


def test_a_token_needs_keys_that_the_relying_party_fetched() -> None:
    assert failures(judge_bundle(bundle(nras=token()), jwks=None)) == ["endorsement_missing"]


@pytest.mark.parametrize(("kind", "sent"), [("gpu", bundle()), ("nras", bundle((gpu_entry(),)))])
def test_what_the_policy_requires_may_not_be_absent(kind: str, sent: EvidenceBundle) -> None:
    assert failures(judge_bundle(sent, policy=relaxed(**{kind: "required"}))) == [
        "evidence_missing"
    ]


@pytest.mark.parametrize(
    ("kind", "sent"), [("gpu", bundle((gpu_entry(),))), ("nras", bundle(nras=token()))]
)
def test_what_the_policy_refuses_may_not_come(kind: str, sent: EvidenceBundle) -> None:
    assert failures(judge_bundle(sent, policy=relaxed(**{kind: "refused"}))) == ["evidence_refused"]


def test_shipped_policies_want_reference_values_and_revocation_of_gpus() -> None:
    result = judge_bundle(bundle((gpu_entry(),)), policy=load_policy("development"))

    assert failures(result) == ["endorsement_missing", "crl_missing"]
    assert result.submods["gpu-0"].status == "contraindicated"


def test_reference_values_that_are_no_rims_fail() -> None:
    junk = GpuEndorsements(rims=(b"<rim/>",), ocsp=())
    result = judge_bundle(bundle((gpu_entry(),)), gpu_endorsements=junk)

    assert not result.is_accepted
    assert result.checks[-2].name == "gpu_rims"


def test_a_foreign_root_of_the_reference_values_colours_the_verdict() -> None:
    """The GPU is a vendor's; what it must measure to is said by a root that the caller added."""
    sent = bundle((gpu_entry(),), tee="snp")
    mine = all_anchors().with_foreign(chain()[-1].public_bytes(Encoding.DER), source="test")

    accepted = judge_bundle(sent, gpu_endorsements=rims(), anchors=mine)
    vendors_only = relaxed(anchor_kinds=frozenset({"vendor"}))
    refused = judge_bundle(sent, gpu_endorsements=rims(), anchors=mine, policy=vendors_only)
    unknown = judge_bundle(sent, gpu_endorsements=rims())

    assert (accepted.tier, accepted.is_accepted) == ("warning", True)
    assert accepted.submods["gpu-0"].claims["measurements_matched"] == 33
    assert accepted.submods["gpu-0"].status == "warning"
    assert any(gap.startswith("vendor:") for gap in accepted.not_covered)
    assert any("signers of reference values" in gap for gap in accepted.not_covered)
    assert (refused.tier, refused.code) == ("warning", "untrusted_root")
    assert failures(unknown) == ["untrusted_root"]


def test_answers_that_are_no_ocsp_fail() -> None:
    junk = GpuEndorsements(rims=(), ocsp=(b"\x30\x00",))

    assert failures(judge_bundle(bundle((gpu_entry(),)), gpu_endorsements=junk)) == ["format"]


def test_the_first_end_of_any_part_ends_the_verdict() -> None:
    """The token lives an hour from a minute ago, the keyset five minutes."""
    sent = bundle((gpu_entry(),), token())

    assert judge_bundle(sent).not_after == AT + timedelta(minutes=5)
    assert judge_bundle(sent, at=AT + timedelta(minutes=5)).code == "keyset_expired"
