"""Which QuotingTee does this machine have?  One for each interface, with its GPUs and event log."""

import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from attestation.collect.cert_table import table_endorsements
from attestation.collect.configfs import ConfigfsTsm
from attestation.collect.detect import CCEL, CONFIGFS, detect_guest
from attestation.collect.errors import TeeUnavailable
from attestation.collect.nvml import Nvml, load_nvml
from attestation.collect.sev_guest import SevGuest
from attestation.collect.tdx_guest import TdxGuest
from attestation.errors import MalformedEvidence
from attestation.model import GpuEntry
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.report import report_from_buffer

_log = logging.getLogger(__name__)

MAX_EVENT_LOG_BYTES = 1024 * 1024
NVIDIA_DRIVER = "proc/driver/nvidia/version"
_PROVIDERS = {"tdx_guest": "tdx", "sev_guest": "snp"}

Quote = Callable[[bytes], tuple[bytes, bytes]]
Gpus = Callable[[bytes], tuple[GpuEntry, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTee:
    """A TEE of this machine.  ``quote`` gives (Evidence, certificate table or nothing)."""

    tee: str
    quote: Quote = field(repr=False)
    gpus: Gpus = field(repr=False)
    event_log_path: Path

    def attest(self, report_data: bytes, *, at: datetime) -> tuple[bytes, SnpEndorsements | None]:
        """Evidence over the 64 bytes, and the certificates that the host gave with it.

        The time is not used: a device has its own idea of it.

        Raises: TeeUnavailable; MalformedEvidence("format").
        """
        evidence, table = self.quote(report_data)
        if self.tee != "snp":
            return evidence, None
        try:
            return report_from_buffer(evidence), table_endorsements(table)
        except MalformedEvidence:
            evidence = report_from_buffer(evidence)
            _log.warning("the host's certificate table is broken and was left out")
            return evidence, None

    def event_log(self) -> str | None:
        """The CCEL area in base64, None where there is none.  Raises: TeeUnavailable."""
        try:
            with self.event_log_path.open("rb") as file:
                data = file.read(MAX_EVENT_LOG_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as err:
            raise TeeUnavailable(
                f"event log: {err.strerror}", next_step="run as root to read the CCEL table"
            ) from err
        if len(data) > MAX_EVENT_LOG_BYTES:
            raise TeeUnavailable(
                f"event log: more than {MAX_EVENT_LOG_BYTES} bytes", next_step="report this size"
            )
        return base64.b64encode(data).decode("ascii")


def open_tee(root: Path = Path("/"), *, with_gpus: bool = True) -> GuestTee:
    """The TEE of the machine whose root folder this is; makes no quote yet.

    Raises: TeeUnavailable: there is none that is supported, and what to do about it.
    """
    guest = detect_guest(root)
    gpus = _gpus(root) if with_gpus else _no_gpus
    event_log_path = root / CCEL
    if guest.interface == "configfs":
        tsm = ConfigfsTsm(base=root / CONFIGFS)
        return GuestTee(
            tee=_label(tsm.provider()),
            quote=_configfs_quote(tsm),
            gpus=gpus,
            event_log_path=event_log_path,
        )
    if guest.interface == "tdx-guest" and guest.device is not None:
        tdx = TdxGuest(device=guest.device)
        return GuestTee(
            tee="tdx",
            quote=lambda report_data: (tdx.quote(report_data), b""),
            gpus=gpus,
            event_log_path=event_log_path,
        )
    if guest.interface == "sev-guest" and guest.device is not None:
        snp = SevGuest(device=guest.device)
        return GuestTee(tee="snp", quote=snp.report, gpus=gpus, event_log_path=event_log_path)
    raise TeeUnavailable("this machine offers no supported TEE", next_step=guest.next_step)


def _label(provider: str) -> str:
    label = _PROVIDERS.get(provider)
    if label is None:
        raise TeeUnavailable(
            f"configfs-tsm: provider {provider[:32]!r} is not supported",
            next_step=f"supported are {', '.join(_PROVIDERS)}",
        )
    return label


def _configfs_quote(tsm: ConfigfsTsm) -> Quote:
    def quote(report_data: bytes) -> tuple[bytes, bytes]:
        report = tsm.report(report_data)
        return report.outblob, report.auxblob

    return quote


def _gpus(root: Path) -> Gpus:
    """A driver without the library is no machine without GPUs."""
    library = load_nvml()
    if library is not None:
        return Nvml(library=library).collect
    return _unreadable_gpus if (root / NVIDIA_DRIVER).exists() else _no_gpus


def _no_gpus(_: bytes) -> tuple[GpuEntry, ...]:
    return ()


def _unreadable_gpus(_: bytes) -> tuple[GpuEntry, ...]:
    raise TeeUnavailable(
        "GPU: there is an NVIDIA driver and nothing to ask it with",
        next_step="install nvidia-ml-py, or leave GPUs out by --no-gpu",
    )
