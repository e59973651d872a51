"""Measurements against reference values: what matches, what does not, and what says so."""

from dataclasses import replace

import pytest

from attestation.errors import AttestationError, MalformedEvidence
from attestation.nvidia.measurements import (
    MatchedMeasurements,
    MeasurementMismatch,
    VerifiedRims,
    require_match,
    rim_ids,
)
from attestation.nvidia.rim import RimEntry, VerifiedRim
from tests.attestation.nvidia.claims import claims, entry, gpu_rims, switch_rims
from tests.attestation.nvidia.device import FakeDevice, blackwell, hopper, switch

WRONG, ALSO_WRONG = b"\1" * 48, b"\2" * 48
RIGHT = hopper().measurements


def _match(device: FakeDevice, rims: VerifiedRims) -> MatchedMeasurements:
    made = claims(device)
    return require_match(made.identity, made.report, rims)


def _code(rims: VerifiedRims, device: FakeDevice | None = None) -> str:
    with pytest.raises(AttestationError) as caught:
        _match(device or hopper(), rims)
    return caught.value.code


def _with(*changed: RimEntry) -> VerifiedRims:
    return gpu_rims(hopper(), {entry.index: entry for entry in changed})


def _firmware(rims: VerifiedRims) -> VerifiedRim:
    assert rims.firmware is not None
    return rims.firmware


def test_every_mismatch_is_named_with_its_source_and_both_values() -> None:
    rims = _with(entry(7, WRONG), entry(22, WRONG, ALSO_WRONG))

    with pytest.raises(MeasurementMismatch) as caught:
        _match(hopper(), rims)

    named = [(mismatch.index, mismatch.source) for mismatch in caught.value.mismatches]
    assert named == [(7, "driver"), (22, "vbios")]
    assert caught.value.code == "measurement_mismatch"
    assert f"driver RIM index 7: got {RIGHT[7].hex()[:16]}, want {'01' * 8}" in str(caught.value)
    assert f"{'01' * 8} or {'02' * 8}" in str(caught.value)


def test_many_mismatches_are_counted_but_not_all_shown() -> None:
    with pytest.raises(MeasurementMismatch, match="; 2 more") as caught:
        _match(hopper(), _with(*(entry(index, WRONG) for index in range(6))))

    assert len(caught.value.mismatches) == 6


def test_rim_index_is_block_minus_one() -> None:
    """A RIM that is off by one block matches nothing."""
    shifted = [entry(index, RIGHT[index + 1]) for index in range(3)]

    with pytest.raises(MeasurementMismatch) as caught:
        _match(hopper(), _with(*shifted))

    assert [mismatch.index for mismatch in caught.value.mismatches] == [0, 1, 2]


def test_any_alternative_is_right() -> None:
    assert _match(hopper(), _with(entry(7, WRONG, RIGHT[7], ALSO_WRONG))).num_matched == 33


def test_an_inactive_entry_does_not_count() -> None:
    assert _match(hopper(), _with(entry(7, WRONG, active=False))).num_matched == 32


def test_the_size_must_be_equal_too() -> None:
    assert _code(_with(entry(7, RIGHT[7], size_bytes=32))) == "measurement_mismatch"


def test_an_index_without_a_block_is_a_mismatch() -> None:
    device = switch()
    bios = _firmware(switch_rims(device))
    rims = VerifiedRims(
        driver=None, firmware=replace(bios, entries={**bios.entries, 31: entry(31, WRONG)})
    )

    with pytest.raises(MeasurementMismatch, match="switch RIM index 31: got no block"):
        _match(device, rims)


def test_the_decoders_index_counts_only_while_the_decoder_is_on() -> None:
    rims = _with(entry(35, WRONG))

    assert _match(hopper(0, nvdec0_status=b"\x55"), rims).num_matched == 33
    assert _code(rims, hopper(0, nvdec0_status=b"\xaa")) == "measurement_mismatch"
    unsaid = replace(hopper(), items={k: v for k, v in hopper().items.items() if k != 11})
    assert _code(rims, unsaid) == "measurement_mismatch"


def test_an_index_active_in_both_rims_is_a_conflict_even_with_equal_values() -> None:
    rims = gpu_rims(hopper())
    firmware = _firmware(rims)
    both = replace(firmware, entries={**firmware.entries, 5: entry(5, RIGHT[5])})
    inactive = replace(firmware, entries={**firmware.entries, 5: entry(5, WRONG, active=False)})

    assert _code(replace(rims, firmware=both)) == "index_conflict"
    assert _match(hopper(), replace(rims, firmware=inactive)).num_matched == 33


def test_rims_in_each_others_place_are_refused() -> None:
    rims = gpu_rims(hopper())

    assert _code(VerifiedRims(driver=rims.firmware, firmware=rims.driver)) == "rim_kind"
    assert _code(VerifiedRims(driver=rims.firmware, firmware=rims.firmware)) == "rim_kind"
    assert _code(replace(rims, firmware=switch_rims(switch()).firmware)) == "rim_kind"


def test_a_rim_of_another_chip_is_refused() -> None:
    rims = gpu_rims(hopper())
    other = replace(_firmware(rims), product="GB100")

    assert _code(replace(rims, firmware=other)) == "rim_kind"


def test_the_reports_own_chip_decides_which_rim_is_right() -> None:
    """All chips of a line share the names in their certificates."""
    device = blackwell(0, chip_info=b"GB110\0")
    rims = gpu_rims(device)

    assert _code(rims, device) == "rim_kind"
    assert rims.driver is not None
    moved = (replace(rim, product="GB110") for rim in (rims.driver, _firmware(rims)))
    driver, firmware = moved
    assert _match(device, VerifiedRims(driver=driver, firmware=firmware)).num_matched == 33


@pytest.mark.parametrize("version", ["590.13", "590.12.0", "590.1"])
def test_a_driver_rim_of_another_version_is_refused(version: str) -> None:
    rims = gpu_rims(hopper())
    assert rims.driver is not None

    assert _code(replace(rims, driver=replace(rims.driver, version=version))) == "rim_version"


def test_a_vbios_rim_of_another_version_is_refused() -> None:
    rims = gpu_rims(hopper())
    other = replace(_firmware(rims), version="96.00.A5.00.02")

    assert _code(replace(rims, firmware=other)) == "rim_version"


def test_nothing_to_compare_with_is_no_match() -> None:
    rims = gpu_rims(hopper())
    assert rims.driver is not None
    empty = replace(rims.driver, entries={})

    assert _code(VerifiedRims(driver=None, firmware=None)) == "endorsement_missing"
    assert _code(VerifiedRims(driver=empty, firmware=None)) == "endorsement_missing"


def test_rim_ids_come_from_the_report() -> None:
    ids = {
        device.chip: dict(rim_ids(made.identity, made.report))
        for device in (hopper(), blackwell(), switch())
        for made in [claims(device)]
    }

    assert ids["GH100"] == {
        "driver": "NV_GPU_DRIVER_GH100_590.12",
        "vbios": "NV_GPU_VBIOS_G520_0200_885_9600A50001",
    }
    assert ids["GB100"]["driver"] == "NV_GPU_CC_DRIVER_GB100_590.12"
    assert ids["LS_10"] == {"switch": "NV_SWITCH_BIOS_5612_0002_890_9610550001"}


def test_a_report_that_does_not_name_its_board_has_no_rim_id() -> None:
    made = claims(hopper(0, project=b"\0"))

    with pytest.raises(MalformedEvidence):
        rim_ids(made.identity, made.report)
