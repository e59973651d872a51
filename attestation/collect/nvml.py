"""What do the GPUs of this guest attest?  Through NVML, by the names of ``nvidia-ml-py``.

Confidential computing must be on, developer tools off and the environment a production one: a GPU
in another state gives no Evidence here, and is never left out as if it were not there. NVSwitches
are not reached through NVML.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from attestation.collect.errors import TeeUnavailable
from attestation.errors import MalformedEvidence, UnsupportedEvidence
from attestation.model import MAX_GPUS, GpuEntry
from attestation.nvidia.report import MAX_REPORT_BYTES, NONCE_BYTES

MAX_CHAIN_BYTES: Final = 0x1400  # NVML_GPU_ATTESTATION_CERT_CHAIN_SIZE
_ARCHS: Final = {9: "HOPPER", 10: "BLACKWELL"}  # NVML_DEVICE_ARCH_*
_FEATURE_ENABLED: Final = 1
_DEVTOOLS_OFF: Final = 0
_PRODUCTION: Final = 2
_PROTECTED_PCIE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The system's mode: ``is_ready`` means that the GPUs accept work."""

    num_gpus: int
    is_confidential: bool
    is_protected_pcie: bool
    has_devtools: bool
    is_production: bool
    is_ready: bool


def load_nvml() -> ModuleType | None:
    """``nvidia-ml-py``, when the extra that brings it is installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvml:
    """NVML through ``library``, the module or something with its names."""

    library: Any

    def state(self) -> GpuState | None:
        """None when there is no NVIDIA driver.  Raises: TeeUnavailable."""
        try:
            self.library.nvmlInit()
        except self.library.NVMLError:
            return None
        try:
            return self._state()
        except self.library.NVMLError as err:
            raise self._failed(err) from err
        finally:
            self.library.nvmlShutdown()

    def collect(self, nonce: bytes) -> tuple[GpuEntry, ...]:
        """Chain and report of every GPU in the order of their indexes; none without a GPU.

        ``nonce`` has 32 bytes.

        Raises: TeeUnavailable; UnsupportedEvidence("unsupported_gpu");
        MalformedEvidence("format"): NVML counts more than its buffers hold.
        """
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"nonce: {len(nonce)} bytes, want {NONCE_BYTES}")
        try:
            self.library.nvmlInit()
        except self.library.NVMLError:
            return ()
        try:
            state = self._state()
            if not state.num_gpus:
                return ()
            _require_confidential(state)
            return tuple(self._entry(index, nonce) for index in range(state.num_gpus))
        except self.library.NVMLError as err:
            raise self._failed(err) from err
        finally:
            self.library.nvmlShutdown()

    def _state(self) -> GpuState:
        num_gpus = int(self.library.nvmlDeviceGetCount())
        if num_gpus > MAX_GPUS:
            raise MalformedEvidence("format", f"NVML: {num_gpus} GPUs, at most {MAX_GPUS}")
        if not num_gpus:
            return GpuState(
                num_gpus=0,
                is_confidential=False,
                is_protected_pcie=False,
                has_devtools=False,
                is_production=False,
                is_ready=False,
            )
        state = self.library.nvmlSystemGetConfComputeState()
        return GpuState(
            num_gpus=num_gpus,
            is_confidential=state.ccFeature == _FEATURE_ENABLED,
            is_protected_pcie=self._multi_gpu_mode() == _PROTECTED_PCIE,
            has_devtools=state.devToolsMode != _DEVTOOLS_OFF,
            is_production=state.environment == _PRODUCTION,
            is_ready=bool(self.library.nvmlSystemGetConfComputeGpusReadyState()),
        )

    def _multi_gpu_mode(self) -> int:
        settings = self.library.c_nvmlSystemConfComputeSettings_v1_t()
        returned = self.library.nvmlSystemGetConfComputeSettings(settings)
        return int(settings.multiGpuMode) if not returned else 0

    def _entry(self, index: int, nonce: bytes) -> GpuEntry:
        handle = self.library.nvmlDeviceGetHandleByIndex(index)
        arch = _ARCHS.get(int(self.library.nvmlDeviceGetArchitecture(handle)))
        if arch is None:
            raise UnsupportedEvidence("unsupported_gpu", f"GPU {index}: its kind does not attest")
        chain = self.library.nvmlDeviceGetConfComputeGpuCertificate(handle)
        report = self.library.nvmlDeviceGetConfComputeGpuAttestationReport(handle, nonce)
        return GpuEntry(
            arch=arch,
            cert_chain=_cut(
                chain.attestationCertChain, chain.attestationCertChainSize, MAX_CHAIN_BYTES
            ).rstrip(b"\0"),
            report=_cut(report.attestationReport, report.attestationReportSize, MAX_REPORT_BYTES),
        )

    def _failed(self, err: Exception) -> TeeUnavailable:
        return TeeUnavailable(
            f"NVML: {err}", next_step="check `nvidia-smi conf-compute -f` and the driver's version"
        )


def _cut(buffer: Sequence[int], num_bytes: int, max_bytes: int) -> bytes:
    if not 0 < num_bytes <= min(max_bytes, len(buffer)):
        raise MalformedEvidence("format", f"NVML: {num_bytes} bytes in a buffer of {max_bytes}")
    return bytes(buffer[:num_bytes])


def _require_confidential(state: GpuState) -> None:
    if not state.is_confidential and not state.is_protected_pcie:
        raise TeeUnavailable(
            "GPU: confidential computing is off",
            next_step="turn it on from the host (gpu-admin-tools), or leave GPUs out by --no-gpu",
        )
    if state.has_devtools:
        raise TeeUnavailable(
            "GPU: developer tools are on, so nothing in it is confidential",
            next_step="set the confidential computing mode to on instead of devtools",
        )
    if not state.is_production:
        raise TeeUnavailable(
            "GPU: not in a production environment", next_step="use production hardware"
        )
