"""What a verified device chain says of the device, for each architecture."""

import pytest

from attestation.nvidia.chain import verify_device_chain
from tests.attestation.nvidia.device import AT, FakeDevice, blackwell, hopper, pem, switch


@pytest.mark.parametrize(
    ("device", "arch", "chip", "kind"),
    [
        (hopper(), "HOPPER", "GH100", "gpu"),
        (blackwell(), "BLACKWELL", "GB100", "gpu"),
        (switch(), "LS10", "LS10", "switch"),
    ],
)
def test_an_identity_is_what_the_certificates_say(
    device: FakeDevice, arch: str, chip: str, kind: str
) -> None:
    certificates = device.certificates()

    identity = verify_device_chain(pem(certificates), anchors=device.pki.anchors, at=AT)

    assert (identity.arch, identity.chip, identity.kind) == (arch, chip, kind)
    assert identity.hwmodel == device.boot_rom_name
    assert identity.ueid == str(certificates[0].serial_number)
    assert identity.anchor == device.pki.anchors.anchors[0]
