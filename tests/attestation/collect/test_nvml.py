"""GPUs through NVML: every GPU or an error, and only in a mode that is confidential."""

from typing import Any

import pytest

from attestation.collect.errors import TeeUnavailable
from attestation.collect.nvml import Nvml
from attestation.errors import AttestationError
from tests.attestation.collect.kernel import FakeNvml
from tests.attestation.nvidia.claims import ARCHS
from tests.attestation.nvidia.device import FakeDevice, blackwell, hopper, pem

_NONCE = bytes(range(32))


def _nvml(*devices: FakeDevice, **changes: Any) -> FakeNvml:
    numbers = {"HOPPER": 9, "BLACKWELL": 10}
    return FakeNvml(
        devices=[
            (numbers[ARCHS[d.chip]], pem(d.certificates()), d.report)
            for d in (devices or (hopper(),))
        ],
        **changes,
    )


def test_chain_and_report_of_every_gpu_in_order() -> None:
    devices = (hopper(), blackwell(1), hopper(2))
    library = _nvml(*devices)

    entries = Nvml(library=library).collect(_NONCE)

    assert [entry.arch for entry in entries] == ["HOPPER", "BLACKWELL", "HOPPER"]
    assert [entry.report for entry in entries] == [device.report(_NONCE) for device in devices]
    assert [entry.cert_chain for entry in entries] == [pem(d.certificates()) for d in devices]
    assert library.opened == 0


def test_a_machine_without_driver_or_gpu_has_none() -> None:
    for library in (FakeNvml(devices=[]), _nvml(has_driver=False)):
        assert Nvml(library=library).collect(_NONCE) == ()
        assert library.opened == 0
    assert Nvml(library=_nvml(has_driver=False)).state() is None


def test_the_state_for_people() -> None:
    state = Nvml(library=_nvml(ready=0, devtools=1)).state()

    assert state is not None
    assert (state.num_gpus, state.is_confidential, state.is_ready, state.has_devtools) == (
        1,
        True,
        False,
        True,
    )


def test_protected_pcie_is_confidential_without_the_feature() -> None:
    assert len(Nvml(library=_nvml(feature=0, multi_gpu=1)).collect(_NONCE)) == 1
    with pytest.raises(TeeUnavailable):
        Nvml(library=_nvml(feature=0, multi_gpu=1, settings_status=3)).collect(_NONCE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"feature": 0}, "confidential computing is off"),
        ({"devtools": 1}, "developer tools are on"),
        ({"environment": 1}, "production"),
        ({"environment": 0}, "production"),
        ({"broken": "nvmlDeviceGetCount"}, "Not Supported"),
        ({"broken": "nvmlSystemGetConfComputeState"}, "Not Supported"),
        ({"broken": "nvmlDeviceGetConfComputeGpuCertificate"}, "Not Supported"),
        ({"broken": "nvmlDeviceGetConfComputeGpuAttestationReport"}, "Not Supported"),
    ],
)
def test_a_gpu_in_another_state_is_never_left_out(changes: dict[str, Any], said: str) -> None:
    library = _nvml(**changes)
    with pytest.raises(TeeUnavailable, match=said) as caught:
        Nvml(library=library).collect(_NONCE)
    assert caught.value.next_step
    assert library.opened == 0


@pytest.mark.parametrize("size", [0, 0x1401, 2**32 - 1])
def test_sizes_beyond_the_buffer(size: int) -> None:
    with pytest.raises(AttestationError) as caught:
        Nvml(library=_nvml(said_size=size)).collect(_NONCE)
    assert caught.value.code == "format"


def test_gpus_that_cannot_attest() -> None:
    library = FakeNvml(devices=[(8, b"chain", lambda _: b"report")])
    with pytest.raises(AttestationError) as caught:
        Nvml(library=library).collect(_NONCE)
    assert caught.value.code == "unsupported_gpu"

    many = FakeNvml(devices=[(9, b"chain", lambda _: b"report")] * 17)
    with pytest.raises(AttestationError) as caught:
        Nvml(library=many).collect(_NONCE)
    assert caught.value.code == "format"


def test_a_nonce_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="want 32"):
        Nvml(library=_nvml()).collect(b"short")
