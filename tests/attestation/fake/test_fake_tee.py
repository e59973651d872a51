"""FakeTee is reproducible, pinned as a fake, and real in everything but its root."""

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.anchors import load_anchors
from attestation.appraise import appraise
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.model import AttestationResult
from attestation.policy import AppraisalPolicy, load_policy
from attestation.tdx.endorsements import TdxCollateral
from tests.attestation.samples import AT, NONCE, evidence


def test_the_fake_root_is_pinned_as_fake_and_only_as_that() -> None:
    digest = hashlib.sha256(FakePki().root.public_bytes(Encoding.DER)).hexdigest()

    anchor = load_anchors().find("dcap", digest)

    assert anchor is not None
    assert (anchor.kind, "FAKE" in anchor.name) == ("fake", True)
    assert load_anchors().of_kinds({"vendor"}).find("dcap", digest) is None


def test_added_by_hand_it_is_no_less_fake() -> None:
    """Else `--trust-anchor` with the fake root would make simulated Evidence look like hardware."""
    added = load_anchors().with_foreign(FakePki().root.public_bytes(Encoding.DER), source="test")
    development = load_policy("development")
    without_fakes = replace(development, anchor_kinds=frozenset({"vendor", "foreign"}))

    def verdict(label: str, policy: AppraisalPolicy) -> AttestationResult:
        bundle = replace(evidence(), tee=label)
        return appraise(bundle, nonce=NONCE, policy=policy, anchors=added, at=AT)

    assert verdict("fake-tdx", development).simulated
    assert verdict("tdx", development).code == "tee_type"
    assert verdict("tdx", without_fakes).code == "untrusted_root"
    assert verdict("fake-tdx", without_fakes).code == "untrusted_root"


def test_no_other_seed_gives_the_pinned_root() -> None:
    other = FakePki(seed=b"mine").root.public_bytes(Encoding.DER)

    assert load_anchors().find("dcap", hashlib.sha256(other).hexdigest()) is None


def test_same_inputs_give_same_bytes() -> None:
    first, second = FakeTee().attest(bytes(64), at=AT), FakeTee().attest(bytes(64), at=AT)

    assert first == second


def test_collateral_is_issued_once_a_day() -> None:
    tee = FakeTee()
    first = tee.collateral(AT)

    assert tee.collateral(AT.replace(hour=23)) is first
    assert tee.collateral(AT.replace(day=2)).tcb_info != first.tcb_info


def test_collateral_survives_its_wire_form() -> None:
    collateral = FakeTee().collateral(AT)

    assert TdxCollateral.from_json_value(collateral.to_json_value()) == collateral


def test_report_data_has_64_bytes() -> None:
    with pytest.raises(ValueError, match="63 bytes, want 64"):
        FakeTee().attest(bytes(63), at=AT)
