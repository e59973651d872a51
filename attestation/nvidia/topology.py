"""Do these devices make one machine, all of it and nothing twice?  [NVIDIA protected PCIe guide]

A guest has one GPU (SPT), several with encrypted NVLink (MPT), or a whole HGX board with NVLink in
the clear (protected PCIe): then the four switches carry data and count as much as the eight GPUs.
Reports do not name the guest they were made in: that several devices answer one nonce is all that
ties them together here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attestation.errors import PolicyViolation
from attestation.nvidia.verifier import GpuClaims, GpuMode

MAX_DEVICES = 16
NUM_PPCIE_GPUS = 8
NUM_PPCIE_SWITCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSystem:
    """Made by ``assemble`` alone: devices of one mode that fit together, each once."""

    gpus: tuple[GpuClaims, ...]
    switches: tuple[GpuClaims, ...]
    mode: GpuMode

    @property
    def devices(self) -> tuple[GpuClaims, ...]:
        """GPUs, then switches."""
        return (*self.gpus, *self.switches)

    @property
    def not_after(self) -> datetime:
        """The earliest end of what any device's claims rest on."""
        return min(device.not_after for device in self.devices)


def assemble(devices: Sequence[GpuClaims]) -> GpuSystem:
    """Steps: 1. count; 2. each device once; 3. one mode, one architecture; 4. the mode's own rule.

    Raises: PolicyViolation: gpu_count (1), topology (2, 3, 4), gpu_mode (3).
    """
    gpus = tuple(device for device in devices if device.identity.kind == "gpu")
    switches = tuple(device for device in devices if device.identity.kind == "switch")
    if not gpus or len(devices) > MAX_DEVICES:  # 1
        raise PolicyViolation("gpu_count", f"{len(gpus)} GPUs among {len(devices)} devices")
    _require_distinct(devices)  # 2
    mode = _common_mode(gpus)  # 3
    if len({gpu.arch for gpu in gpus}) > 1:
        raise PolicyViolation("topology", "GPUs of more than one architecture")
    if mode == "ppcie":  # 4
        _require_board(gpus, switches)
    elif switches:
        raise PolicyViolation("topology", f"{len(switches)} switches beside GPUs in mode {mode}")
    elif mode != "mpt" and len(gpus) > 1:
        raise PolicyViolation("topology", f"{len(gpus)} GPUs in mode {mode}, which is for one")
    return GpuSystem(gpus=gpus, switches=switches, mode=mode)


def _require_distinct(devices: Sequence[GpuClaims]) -> None:
    """One device may not stand in for another: neither its serial number nor its key."""
    ueids = {device.identity.ueid for device in devices}
    leaves = {device.identity.chain.leaf.sha256 for device in devices}
    boot_roms = {device.identity.chain.certificates[1].sha256 for device in devices}
    if not len(ueids) == len(leaves) == len(boot_roms) == len(devices):
        raise PolicyViolation("topology", f"{len(devices)} reports are not of as many devices")


def _common_mode(gpus: Sequence[GpuClaims]) -> GpuMode:
    modes = {gpu.mode for gpu in gpus if gpu.mode is not None}
    if len(modes) != 1:
        raise PolicyViolation("gpu_mode", f"GPUs in different modes: {', '.join(sorted(modes))}")
    return modes.pop()


def _require_board(gpus: Sequence[GpuClaims], switches: Sequence[GpuClaims]) -> None:
    """Every GPU sees exactly the switches that report, every switch the same eight GPUs."""
    if (len(gpus), len(switches)) != (NUM_PPCIE_GPUS, NUM_PPCIE_SWITCHES):
        raise PolicyViolation(
            "topology",
            f"protected PCIe: {len(gpus)} GPUs and {len(switches)} switches, "
            f"want {NUM_PPCIE_GPUS} and {NUM_PPCIE_SWITCHES}",
        )
    own_pdis = {switch.report.opaque.device_pdi for switch in switches}
    if len(own_pdis) != NUM_PPCIE_SWITCHES:
        raise PolicyViolation("topology", "protected PCIe: switches do not each name themselves")
    if any(gpu.report.opaque.switch_pdis != own_pdis for gpu in gpus):
        raise PolicyViolation("topology", "protected PCIe: a GPU is linked to other switches")
    views = {switch.report.opaque.gpu_pdis for switch in switches}
    if len(views) != 1 or len(views.pop()) != NUM_PPCIE_GPUS:
        raise PolicyViolation("topology", "protected PCIe: switches do not see the same eight GPUs")
