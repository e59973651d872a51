"""What a verified device says of itself, for each architecture, and in which steps."""

from typing import Any

import pytest

from attestation.checks import CheckLog
from attestation.model import GpuEntry
from attestation.nvidia.chain import verify_device_chain
from attestation.nvidia.verifier import GpuVerifier, verify_device
from tests.attestation.nvidia.device import AT, NONCE, FakeDevice, blackwell, hopper, pem, switch


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


@pytest.mark.parametrize("label", [None, "gpu-3"])
def test_steps_are_named_by_their_label(label: str | None) -> None:
    device, log = hopper(), CheckLog()
    chosen: dict[str, Any] = {} if label is None else {"label": label}
    entry = GpuEntry(arch="HOPPER", cert_chain=pem(device.certificates()), report=device.report())

    claims = GpuVerifier(anchors=device.pki.anchors).verify(
        entry, nonce=NONCE, at=AT, log=log, rims=None, **chosen
    )
    verify_device(
        entry.report,
        entry.cert_chain,
        anchors=device.pki.anchors,
        nonce=NONCE,
        at=AT,
        log=log,
        arch=None,
        **chosen,
    )

    steps = ("chain", "format", "nonce", "signature", "fwid")
    shown = [check.name for check in log.checks]
    name = label or "gpu"
    want = [f"{name}_{step}" for step in steps]
    assert shown == [*want, f"{name}_measurements", f"{name}_revocation", *want]
    assert claims.anchors[0] == device.pki.anchors.anchors[0]
    assert claims.arch == "HOPPER"
