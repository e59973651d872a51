"""What is this guest, and through which interface does it attest?

Looks at files below ``root`` alone and asks no device anything. It is a hint for choosing an
interface and for telling people what to do, never a claim: only Evidence is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

GuestKind = Literal["tdx", "snp", "none"]
Interface = Literal["configfs", "sev-guest", "tdx-guest", "none"]

CONFIGFS = "sys/kernel/config/tsm/report"
SEV_GUEST = "dev/sev-guest"
TDX_GUESTS = ("dev/tdx_guest", "dev/tdx-guest")
CCEL = "sys/firmware/acpi/tables/data/CCEL"
MAX_CPUINFO_BYTES = 64 * 1024
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_INSIDE = "run inside a TDX or SEV-SNP guest, or use the simulated TEE under the development policy"
_MOUNT = "mount configfs (mount -t configfs none /sys/kernel/config) and load {} (Linux 6.7)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """What was found; ``device`` is the node of a device interface, ``next_step`` for people."""

    kind: GuestKind
    interface: Interface
    device: Path | None
    has_event_log: bool
    next_step: str


def detect_guest(root: Path) -> Guest:
    """The guest whose root folder this is; unreadable files count as absent."""
    flags = _cpu_flags(root)
    tdx_device = next((root / name for name in TDX_GUESTS if (root / name).exists()), None)
    sev_device = root / SEV_GUEST if (root / SEV_GUEST).exists() else None
    kind: GuestKind = "none"
    if "tdx_guest" in flags or tdx_device is not None:
        kind = "tdx"
    elif "sev_snp" in flags or sev_device is not None:
        kind = "snp"
    interface: Interface = "none"
    device = None
    if (root / CONFIGFS).is_dir():
        interface = "configfs"
    elif tdx_device is not None:
        interface, device = "tdx-guest", tdx_device
    elif sev_device is not None:
        interface, device = "sev-guest", sev_device
    return Guest(
        kind=kind,
        interface=interface,
        device=device,
        has_event_log=(root / CCEL).exists(),
        next_step=_next_step(root, kind, interface),
    )


def _next_step(root: Path, kind: GuestKind, interface: Interface) -> str:
    if interface != "none":
        return ""
    if _text(root / "sys/class/dmi/id/chassis_asset_tag") == _AZURE_TAG:
        return (
            "Azure attests through the vTPM, which is not read here: read NV index 0x01400001 "
            "(tpm2_nvread) and judge it by `attest verify --kind azure-snp`"
        )
    if kind != "none":
        return _MOUNT.format("tdx-guest" if kind == "tdx" else "sev-guest")
    if (root / "sys/module/kvm_amd").exists() or (root / "sys/module/kvm_intel").exists():
        return f"this is a host, which has no Evidence of its own: {_INSIDE}"
    return _INSIDE


def _cpu_flags(root: Path) -> frozenset[str]:
    """Of the first processor that is listed."""
    for line in _text(root / "proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CPUINFO_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
