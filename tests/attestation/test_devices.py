"""GPUs and tokens inside a verdict: which endorsements are theirs, what is shown and left open."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestation import devices
from attestation.devices import gpu_facts, nras_facts, verify_token
from attestation.draft import Draft
from attestation.errors import MalformedEvidence
from attestation.model import AttestationResult, GpuEndorsements, GpuEntry
from attestation.nras.device import DeviceClaims
from attestation.nras.token import NrasClaims
from attestation.nvidia.measurements import VerifiedRims
from attestation.nvidia.rim import VerifiedRim
from tests.attestation.nvidia.claims import (
    claims,
    gpu_rims,
    ocsp_answer,
    ocsp_answers,
    switch_rims,
)
from tests.attestation.nvidia.device import FWID, NONCE, FakeDevice, blackwell, hopper, pem, switch
from tests.attestation.samples import AT, Refuse
from tests.attestation.sessions import (
    DEVICE_NONCE,
    all_anchors,
    bundle,
    gpu_entry,
    judge_bundle,
    jwks,
    relaxed,
    rims,
    token,
)
from tests.vectors.nvidia_refs.pki import chain

_RELAY = "gpu_relay: without TDISP a GPU of another machine could be presented as this one's"
_NO_OWN = "gpu: only NVIDIA's service looked at the GPUs, their own reports did not come along"
_JWKS = "nras_keys: the keys of NVIDIA's service are trusted as given, no root pins them"
_NO_OCSP = "revocation: no OCSP answer says that the certificates of gpu-0 are not revoked"
_NO_RIM_OCSP = "revocation: nobody was asked whether the signers of reference values are revoked"
_UNMEASURED = "measurements: any device that NVIDIA's service finds good passes: "


def _judge(**endorsements: tuple[bytes, ...]) -> AttestationResult:
    given = {"rims": (), "ocsp": (), **endorsements}
    return judge_bundle(
        bundle((gpu_entry(),)),
        gpu_endorsements=GpuEndorsements(**given),
        anchors=all_anchors().with_foreign(chain()[-1].public_bytes(Encoding.DER), source="test"),
    )


def _entry(device: FakeDevice, arch: str) -> GpuEntry:
    return GpuEntry(arch=arch, cert_chain=pem(device.certificates()), report=device.report())


def test_each_thing_that_nobody_vouched_for_is_told() -> None:
    answers = ocsp_answers(hopper()).answers
    bare, answered, measured = _judge(), _judge(ocsp=answers), _judge(rims=rims().rims)

    for result in (bare, answered, measured):
        assert result.is_accepted
        assert _RELAY in result.not_covered
    told = [_NO_OCSP in each.not_covered for each in (bare, answered, measured)]
    assert told == [True, False, True]
    told = [_NO_RIM_OCSP in each.not_covered for each in (bare, answered, measured)]
    assert told == [False, False, True]
    assert "gpu_topology" in [check.name for check in bare.checks]
    shown = [each.submods["gpu-0"].claims["revocation"] for each in (bare, answered)]
    assert shown == ["not checked", "good"]
    assert measured.submods["gpu-0"].claims["measurements_matched"] == 33


def test_a_token_without_the_devices_own_reports() -> None:
    alone = judge_bundle(bundle(nras=token()))
    both = judge_bundle(bundle((gpu_entry(),), token()))
    names = [check.name for check in both.checks if check.outcome == "pass"]

    assert {_JWKS, _NO_OWN} <= set(alone.not_covered)
    assert _JWKS in both.not_covered
    assert _NO_OWN not in both.not_covered
    assert {"nras.jwks", "nras.same_devices", "nras.token_format"} <= set(names)
    assert alone.submods["nras"].trust_anchor == ""
    assert alone.submods["nras"].claims["devices"] == ("GPU-0",)


def test_a_token_gives_its_claims() -> None:
    draft = Draft(policy=relaxed(), at=AT, evidence_sha256="")

    made = verify_token(draft, token(), nonce=DEVICE_NONCE, jwks=jwks(), system=None)

    assert [device.name for device in made.devices] == ["GPU-0"]


def test_a_token_is_judged_by_its_own_section() -> None:
    policy = relaxed()
    refusing = replace(policy, rules={**policy.rules, "nras": (Refuse(),)})
    empty = replace(policy, rules={**policy.rules, "nras": ()})

    refused = judge_bundle(bundle(nras=token()), policy=refusing)
    assert refused.code == "claims"
    assert refused.submods["nras"].status == "contraindicated"
    unmeasured = judge_bundle(bundle(nras=token()), policy=empty)
    assert any(gap.startswith(_UNMEASURED) for gap in unmeasured.not_covered)


def test_facts_of_a_gpu_and_of_a_switch() -> None:
    device = hopper()
    full = claims(device, rims=gpu_rims(device), answers=ocsp_answers(device))
    facts, of_switch = gpu_facts(full), gpu_facts(claims(switch()))

    assert facts == {
        "arch": "HOPPER",
        "hwmodel": device.boot_rom_name,
        "ueid": full.identity.ueid,
        "eat_nonce": NONCE.hex(),
        "mode": "spt",
        "driver_version": full.report.opaque.driver_version,
        "vbios_version": full.report.opaque.vbios_version,
        "fwid": FWID.hex(),
        "measurements_matched": 33,
        "revocation": "good",
    }
    for name, value in (
        ("arch", "LS10"),
        ("mode", ""),
        ("driver_version", ""),
        ("fwid", ""),
        ("measurements_matched", 0),
        ("revocation", "not checked"),
    ):
        assert of_switch[name] == value, name


def test_facts_of_a_token() -> None:
    device = DeviceClaims(
        name="GPU-0",
        kind="gpu",
        hw_model="GH100",
        ueid="7",
        driver_version=None,
        vbios_version="1",
        warning=None,
        certificates_end=None,
    )
    facts = nras_facts(
        NrasClaims(
            version="3.0",
            nonce=NONCE,
            devices=(device, replace(device, name="GPU-1", ueid="8", hw_model="GB100")),
            issued_at=AT,
            verified_at=AT,
            not_after=AT + timedelta(hours=1),
        )
    )

    assert facts == {
        "claims_version": "3.0",
        "eat_nonce": NONCE.hex(),
        "issued_at": "2026-12-01T12:00:00Z",
        "devices": ("GPU-0", "GPU-1"),
        "ueids": ("7", "8"),
        "hwmodels": ("GH100", "GB100"),
    }


def _pair(given: VerifiedRims) -> tuple[VerifiedRim, VerifiedRim]:
    assert given.driver is not None
    assert given.firmware is not None
    return given.driver, given.firmware


def test_rims_are_chosen_by_kind_version_and_chip() -> None:
    device = hopper()
    driver, vbios = _pair(gpu_rims(device))
    entry = _entry(device, "HOPPER")
    other_version = replace(driver, version="1.2.3"), replace(vbios, version="1.2.3")

    for given in ([driver, vbios], [*other_version, vbios, driver]):
        chosen = devices._select_rims(entry, given)
        assert (chosen.driver, chosen.firmware) == (driver, vbios)
    assert devices._select_rims(entry, other_version) == VerifiedRims(driver=None, firmware=None)
    upper = replace(vbios, version=vbios.version.upper())
    assert devices._select_rims(entry, [upper]).firmware == upper


def test_among_fitting_rims_that_of_the_reports_own_chip_wins() -> None:
    device = blackwell()
    driver, _ = _pair(gpu_rims(device))
    chip = claims(device).report.opaque.chip_info
    assert chip is not None
    own, other = replace(driver, product=chip), replace(driver, product="GB999")

    for given in ([own, other], [other, own]):
        assert devices._select_rims(_entry(device, "BLACKWELL"), given).driver == own
    assert devices._select_rims(_entry(device, "BLACKWELL"), [other]).driver == other


def test_a_switch_has_the_rim_of_its_bios_alone() -> None:
    device = switch()
    bios = switch_rims(device).firmware
    assert bios is not None
    driver, vbios = _pair(gpu_rims(hopper()))
    wrong_kind = replace(vbios, version=bios.version)

    chosen = devices._select_rims(_entry(device, "LS10"), [driver, wrong_kind, bios])

    assert chosen == VerifiedRims(driver=None, firmware=bios)


def test_a_report_without_a_version_finds_no_rim_without_one() -> None:
    report = claims(switch()).report
    driver, _ = _pair(gpu_rims(hopper()))
    nameless = replace(driver, version="X")

    assert devices._find([nameless], "driver", report) is None


def test_ocsp_answers_are_put_in_the_order_of_the_chain() -> None:
    device = hopper()
    entry, want = _entry(device, "HOPPER"), ocsp_answers(device)
    reverse = GpuEndorsements(rims=(), ocsp=want.answers[::-1])

    chosen = devices._select_ocsp(entry, reverse)

    assert chosen is not None
    assert chosen.answers == want.answers
    assert chosen.nonces == (None, None, None)
    short = devices._select_ocsp(entry, GpuEndorsements(rims=(), ocsp=want.answers[:1]))
    assert short is not None
    assert short.answers == (want.answers[0], b"", b"")


def test_an_answer_of_another_ca_under_the_same_serial_number_is_not_taken() -> None:
    device = hopper()
    want = ocsp_answers(device).answers
    _, *asked, root = device.certificates()
    foreign = tuple(ocsp_answer(device, subject, root) for subject in asked[:-1])
    entry = _entry(device, "HOPPER")

    for given in ((*want, *foreign), (*foreign, *want)):
        chosen = devices._select_ocsp(entry, GpuEndorsements(rims=(), ocsp=given))
        assert chosen is not None
        assert chosen.answers == want
    alone = devices._select_ocsp(entry, GpuEndorsements(rims=(), ocsp=foreign))
    assert alone is not None
    assert alone.answers == (b"", b"", b"")


@pytest.mark.parametrize("answer", [b"", b"\x30\x03abc", bytes.fromhex("30030a0103")])
def test_what_is_no_answer_to_a_question_is_refused(answer: bytes) -> None:
    given = GpuEndorsements(rims=(), ocsp=(answer,))

    with pytest.raises(MalformedEvidence) as caught:
        devices._select_ocsp(_entry(hopper(), "HOPPER"), given)

    assert caught.value.code == "format"


@pytest.mark.parametrize("given", [None, GpuEndorsements(rims=(b"<r/>",), ocsp=())])
def test_without_answers_nothing_is_chosen(given: Any) -> None:
    assert devices._select_ocsp(_entry(hopper(), "HOPPER"), given) is None
