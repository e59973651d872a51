"""What a person reads of measurements that do not match, and of a board that names itself badly."""

from dataclasses import replace

import pytest

from attestation.errors import AttestationError
from attestation.nvidia import opaque
from attestation.nvidia.measurements import MeasurementMismatch, Mismatch, rim_ids
from attestation.nvidia.report import DeviceReport
from tests.attestation.nvidia.claims import claims
from tests.attestation.nvidia.device import hopper

_ONE = Mismatch(index=3, source="driver", observed=b"\1" * 48, expected=(b"\2" * 48,))
_SHOWN = f"driver RIM index 3: got {'01' * 8}, want {'02' * 8}"


def test_a_block_that_is_not_there_is_called_no_block() -> None:
    text = str(replace(_ONE, observed=None))

    assert text == f"driver RIM index 3: got no block, want {'02' * 8}"


@pytest.mark.parametrize(
    ("num_mismatches", "text"),
    [
        (1, _SHOWN),
        (2, f"{_SHOWN}; {_SHOWN}"),
        (4, "; ".join([_SHOWN] * 4)),
        (5, "; ".join([_SHOWN] * 4) + "; 1 more"),
    ],
)
def test_four_mismatches_are_shown_and_the_rest_counted(num_mismatches: int, text: str) -> None:
    assert str(MeasurementMismatch([_ONE] * num_mismatches)) == text


@pytest.mark.parametrize("item", [opaque.PROJECT, opaque.PROJECT_SKU, opaque.CHIP_SKU])
def test_a_board_without_a_part_of_its_name_has_no_rim_id(item: int) -> None:
    device = hopper()
    nameless = replace(device, items={k: v for k, v in device.items.items() if k != item})
    made = claims(nameless)

    assert isinstance(made.report, DeviceReport)
    with pytest.raises(AttestationError) as caught:
        rim_ids(made.identity, made.report)
    assert caught.value.code == "format"
