"""Reports: every byte is read, every signed bit counts, and no bytes break the parser."""

import random

import pytest

from attestation.errors import AttestationError, MalformedEvidence
from attestation.nvidia import verifier
from attestation.nvidia.chain import verify_device_chain
from attestation.nvidia.opaque import DeviceKind
from attestation.nvidia.report import SIGNATURE_BYTES, parse_report, report_fields
from tests.attestation.nvidia.device import (
    AT,
    GPU_PDIS,
    NONCE,
    SWITCH_PDIS,
    FakeDevice,
    board_gpu,
    hopper,
    pem,
    switch,
)
from tests.support.resources import vectors_dir

NUM_MUTATIONS = 2000


def _published() -> list[tuple[bytes, DeviceKind]]:
    folder = vectors_dir() / "attestation" / "nvidia"
    kinds: dict[str, DeviceKind] = {"gpu": "gpu", "switch": "switch"}
    return [
        (path.read_bytes(), kind)
        for name, kind in kinds.items()
        for path in sorted((folder / name).glob("*.report.bin"))
    ]


@pytest.mark.parametrize("device", [hopper(), switch()], ids=["gpu", "switch"])
def test_fields_account_for_every_byte(device: FakeDevice) -> None:
    kind: DeviceKind = "switch" if device.chip == "LS_10" else "gpu"
    _require_no_gap(device.report(), kind)


def test_fields_account_for_every_byte_of_real_reports() -> None:
    reports = _published()
    for data, kind in reports:
        _require_no_gap(data, kind)
    assert len(reports) == 18


def test_fields_show_what_they_are() -> None:
    fields = {field.name: field for field in report_fields(hopper().report(), "gpu")}

    assert fields["request.nonce"].value == NONCE.hex()
    assert fields["opaque.driver_version"].value == "590.12"
    assert fields["block[64].value"].size_bytes == 48
    assert fields["response.signature"].size_bytes == SIGNATURE_BYTES


def test_versions_of_real_reports() -> None:
    """VBIOS bytes are packed least first, with the first part last; a switch sends text."""
    folder = vectors_dir() / "attestation" / "nvidia"
    gpu = parse_report((folder / "gpu/hopper-590.12-ppcie.report.bin").read_bytes(), "gpu")
    nvswitch = parse_report((folder / "switch/multi4-ls10-0.report.bin").read_bytes(), "switch")

    assert (gpu.opaque.driver_version, gpu.opaque.vbios_version) == ("590.12", "96.00.A5.00.01")
    assert nvswitch.opaque.vbios_version == "96.10.55.00.01"
    assert (len(gpu.measurements), len(nvswitch.measurements)) == (64, 31)
    assert len(gpu.opaque.switch_pdis) == 4


def test_versions_read_in_one_case() -> None:
    """RIMs and floors are compared with them."""
    nvswitch = parse_report(switch(0, vbios_version=b"96.10.5f.00.01").report(), "switch")

    assert nvswitch.opaque.vbios_version == "96.10.5F.00.01"


def test_pdis_are_named_as_switches_name_themselves() -> None:
    gpu = parse_report(board_gpu().report(), "gpu").opaque
    nvswitch = parse_report(switch(2).report(), "switch").opaque

    assert gpu.switch_pdis == set(SWITCH_PDIS)  # and the links that are off are left out
    assert nvswitch.device_pdi == SWITCH_PDIS[2]
    assert nvswitch.gpu_pdis == set(GPU_PDIS)


def test_blocks_may_come_in_any_order() -> None:
    device = hopper()

    def swap(data: bytearray) -> None:
        start = 45
        data[start : start + 110] = data[start + 55 : start + 110] + data[start : start + 55]

    report = parse_report(device.report(change=swap), "gpu")

    assert report.measurements == device.measurements


def test_a_report_longer_than_the_driver_can_return_is_not_read() -> None:
    with pytest.raises(MalformedEvidence, match="at most 8192"):
        parse_report(bytes(8193), "gpu")


def test_any_flipped_signed_bit_rejects() -> None:
    """One bit of each signed byte; the chain does not change, so it is verified once."""
    device = hopper()
    identity = verify_device_chain(pem(device.certificates()), anchors=device.pki.anchors, at=AT)
    good, rng = device.report(), random.Random(7)
    accepted = []
    for offset in range(len(good) - SIGNATURE_BYTES):
        data = bytearray(good)
        data[offset] ^= 1 << rng.randrange(8)
        try:
            report = parse_report(bytes(data), "gpu")
            verifier._require_nonce(report, NONCE)
            verifier._verify_signature(identity, report)
            accepted.append(offset)
        except AttestationError:
            pass
    assert accepted == []


def test_mutated_reports_raise_only_our_errors() -> None:
    device, rng = hopper(), random.Random(11)
    identity = verify_device_chain(pem(device.certificates()), anchors=device.pki.anchors, at=AT)
    good = device.report()
    for mutated in (_mutate(good, rng) for _ in range(NUM_MUTATIONS)):
        if mutated != good:
            with pytest.raises(AttestationError):
                verifier._verify_signature(identity, parse_report(mutated, "gpu"))


def test_mutated_chains_raise_only_our_errors() -> None:
    device, rng = hopper(), random.Random(12)
    good = pem(device.certificates())
    for mutated in (_mutate(good, rng) for _ in range(NUM_MUTATIONS // 4)):
        try:
            verify_device_chain(mutated, anchors=device.pki.anchors, at=AT)
        except AttestationError:
            continue
        assert b"".join(mutated.split()) == b"".join(good.split())  # white space is no part of it


def _mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three of: flip, overwrite by an extreme, cut, insert, repeat a stretch."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed)) if changed else 0
        kind = rng.randrange(5)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del changed[at : at + rng.choice((1, 55, len(changed)))]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            changed[at:at] = changed[at : at + rng.randint(1, 64)]
    return bytes(changed)


def _require_no_gap(data: bytes, kind: DeviceKind) -> None:
    offset = 0
    for field in report_fields(data, kind):
        assert field.offset == offset, field.name
        offset += field.size_bytes
    assert offset == len(data)
