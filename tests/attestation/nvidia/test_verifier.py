"""GpuVerifier: one device at a time, every step logged, reference values and revocation held."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.model import GpuEntry
from attestation.nvidia.measurements import VerifiedRims
from attestation.nvidia.verifier import GpuVerifier, OcspAnswers
from tests.attestation.nvidia.claims import claims, gpu_rims, ocsp_answers, switch_rims
from tests.attestation.nvidia.device import (
    AT,
    NONCE,
    FakeDevice,
    blackwell,
    board_gpu,
    hopper,
    pem,
    switch,
)

STEPS = ["chain", "format", "nonce", "signature", "fwid", "measurements", "revocation"]


def _code(device: FakeDevice, rims: VerifiedRims | None, answers: OcspAnswers | None) -> str:
    with pytest.raises(AttestationError) as caught:
        claims(device, rims=rims, answers=answers)
    return caught.value.code


def test_every_step_is_logged_under_its_label() -> None:
    log = CheckLog()

    made = claims(hopper(), rims=gpu_rims(hopper()), answers=ocsp_answers(hopper()), log=log)

    assert [check.name for check in log.checks] == [f"gpu_{step}" for step in STEPS]
    assert {check.outcome for check in log.checks} == {"pass"}
    assert made.measurements is not None
    assert made.measurements.num_matched == 33
    assert made.not_after == AT + timedelta(hours=1)  # the OCSP answers end first


def test_claims_end_with_their_reference_values() -> None:
    rims, end = gpu_rims(hopper()), AT + timedelta(minutes=10)
    assert rims.driver is not None
    chain = rims.driver.chain
    signer = replace(chain.leaf, not_after=end)
    short = replace(chain, certificates=(signer, *chain.certificates[1:]))

    made = claims(hopper(), rims=replace(rims, driver=replace(rims.driver, chain=short)))

    assert made.not_after == end


def test_what_was_not_given_is_said_and_not_claimed() -> None:
    log = CheckLog()

    made = claims(hopper(), log=log)

    outcomes = {check.name: check.outcome for check in log.checks}
    assert outcomes["gpu_measurements"] == outcomes["gpu_revocation"] == "not_applicable"
    assert (made.measurements, made.revocation) == (None, None)


def test_a_failed_step_ends_it_with_its_code_in_the_log() -> None:
    log, device = CheckLog(), hopper()
    entry = GpuEntry(
        arch="HOPPER", cert_chain=pem(device.certificates()), report=device.report(bytes(32))
    )

    with pytest.raises(AttestationError):
        GpuVerifier(anchors=device.pki.anchors).verify(
            entry, nonce=NONCE, at=AT, log=log, rims=None, label="gpu3"
        )

    assert [(check.name, check.code) for check in log.checks[-1:]] == [
        ("gpu3_nonce", "nonce_mismatch")
    ]


@pytest.mark.parametrize(
    ("device", "mode"),
    [
        (hopper(), "spt"),
        (blackwell(), "mpt"),
        (board_gpu(), "ppcie"),
        (switch(), None),
        (hopper(0, protected_pcie_status=b"\x55", feature_flag=b"\1\0"), "mpt"),
    ],
    ids=["spt", "mpt", "ppcie", "switch", "hopper-mpt"],
)
def test_mode(device: FakeDevice, mode: str | None) -> None:
    assert claims(device).mode == mode


def test_mode_of_old_firmware() -> None:
    """Before the feature flag a report says at most whether PCIe is protected."""
    new = hopper()
    old = replace(new, items={key: value for key, value in new.items.items() if key != 36})
    older = replace(old, items={key: value for key, value in old.items.items() if key != 21})
    protected = replace(old, items={**old.items, 21: b"\xaa"})

    modes = [claims(device).mode for device in (old, older, protected)]

    assert modes == ["unstated", "unstated", "ppcie"]


def test_missing_reference_values_reject() -> None:
    rims = gpu_rims(hopper())

    assert _code(hopper(), replace(rims, driver=None), None) == "endorsement_missing"
    assert _code(hopper(), replace(rims, firmware=None), None) == "endorsement_missing"
    assert _code(switch(), VerifiedRims(driver=None, firmware=None), None) == "endorsement_missing"


def test_a_switch_is_matched_with_its_bios_alone() -> None:
    rims = switch_rims(switch())

    made = claims(switch(), rims=rims)

    assert made.measurements is not None
    assert made.measurements.num_matched == 31
    driver = gpu_rims(hopper()).driver
    assert _code(switch(), replace(rims, driver=driver), None) == "rim_kind"


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_revoked_or_held_certificate_rejects(index: int) -> None:
    revoked = ocsp_answers(hopper(), revoked_index=index)
    held = ocsp_answers(hopper(), revoked_index=index, reason=x509.ReasonFlags.certificate_hold)

    assert _code(hopper(), None, revoked) == "certificate_revoked"
    assert _code(hopper(), None, held) == "certificate_revoked"


def test_ocsp_answers_must_be_all_current_and_about_this_chain() -> None:
    good = ocsp_answers(hopper())
    two = OcspAnswers(answers=good.answers[:2], nonces=good.nonces[:2])
    swapped = replace(good, answers=good.answers[::-1])
    stale = ocsp_answers(hopper(), next_update=AT)
    asked = replace(good, nonces=(bytes(32),) * 3)

    assert _code(hopper(), None, OcspAnswers(answers=(), nonces=())) == "crl_missing"
    assert _code(hopper(), None, two) == "crl_missing"
    assert _code(hopper(), None, swapped) == "crl_issuer"
    assert _code(hopper(), None, stale) == "crl_expired"
    assert _code(hopper(), None, asked) == "nonce_mismatch"
    assert _code(hopper(), None, ocsp_answers(hopper(1))) == "crl_issuer"


def test_late_answers_are_taken_within_the_grace_alone() -> None:
    late = ocsp_answers(hopper(), next_update=AT - timedelta(minutes=10))
    one_late = replace(late, answers=(*ocsp_answers(hopper()).answers[:2], late.answers[2]))
    grace = timedelta(minutes=30)

    for given in (late, one_late):
        made = claims(hopper(), answers=given, ocsp_grace=grace)
        assert made.late_since == AT - timedelta(minutes=10)
        assert made.not_after == AT + timedelta(minutes=20)
        for too_short in (timedelta(0), timedelta(minutes=10)):
            with pytest.raises(AttestationError) as caught:
                claims(hopper(), answers=given, ocsp_grace=too_short)
            assert caught.value.code == "crl_expired"


def test_a_grace_changes_nothing_for_current_answers() -> None:
    for answers in (ocsp_answers(hopper()), None):
        made = claims(hopper(), answers=answers, ocsp_grace=timedelta(days=14))
        assert made == claims(hopper(), answers=answers)
        assert made.late_since is None


def test_the_first_end_is_since_when_answers_are_late() -> None:
    first, second = (
        ocsp_answers(hopper(), next_update=AT - timedelta(minutes=minutes)).answers
        for minutes in (20, 10)
    )
    given = OcspAnswers(answers=(second[0], first[1], second[2]), nonces=(None,) * 3)

    made = claims(hopper(), answers=given, ocsp_grace=timedelta(minutes=30))

    assert made.late_since == AT - timedelta(minutes=20)
    assert made.not_after == AT + timedelta(minutes=10)


@pytest.mark.parametrize(
    "reason", [x509.ReasonFlags.key_compromise, x509.ReasonFlags.certificate_hold]
)
def test_no_grace_for_a_revoked_or_held_certificate(reason: x509.ReasonFlags) -> None:
    late = ocsp_answers(
        hopper(), next_update=AT - timedelta(minutes=1), revoked_index=2, reason=reason
    )

    with pytest.raises(AttestationError) as caught:
        claims(hopper(), answers=late, ocsp_grace=timedelta(days=1))
    assert caught.value.code == "certificate_revoked"


def test_one_device_leaves_nothing_for_the_next() -> None:
    """The same verifier judges a good GPU the same after a bad one."""
    verifier, bad, good = GpuVerifier(anchors=hopper().pki.anchors), hopper(1), hopper(2)
    forged = GpuEntry(arch="HOPPER", cert_chain=pem(bad.certificates()), report=good.report())
    entry = GpuEntry(arch="HOPPER", cert_chain=pem(good.certificates()), report=good.report())

    with pytest.raises(AttestationError):
        verifier.verify(forged, nonce=NONCE, at=AT, log=CheckLog(), rims=gpu_rims(bad))
    made = verifier.verify(entry, nonce=NONCE, at=AT, log=CheckLog(), rims=None)

    assert made.identity.ueid == str(0x2002)
    assert made.measurements is None
