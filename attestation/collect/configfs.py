"""How does Linux give a quote through configfs-tsm?  [linux: ABI/testing/configfs-tsm-report]

A folder made under ``report`` is a request: its files are written and read, removing it ends it.
Reading ``outblob`` makes the quote. ``generation`` counts writes, so a count that differs from our
own means that somebody else wrote to the same entry.
"""

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from attestation.collect.errors import TeeUnavailable
from attestation.collect.retrying import Changed, retried

REPORT_DATA_BYTES: Final = 64
MAX_OUTBLOB_BYTES: Final = 32 * 1024  # TSM_OUTBLOB_MAX
MAX_AUXBLOB_BYTES: Final = 256 * 1024
MAX_TEXT_BYTES: Final = 64
DEFAULT_BASE: Final = Path("/sys/kernel/config/tsm/report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The operations on the tree, so that a test can stand in for the kernel."""

    mkdir: Callable[[Path], None] = Path.mkdir
    rmdir: Callable[[Path], None] = Path.rmdir

    def write(self, path: Path, data: bytes) -> None:
        """One write call, as the kernel wants it; never creates a file."""
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.write(handle, data) != len(data):
                raise OSError(errno.EIO, "short write", str(path))
        finally:
            os.close(handle)

    def read(self, path: Path, max_bytes: int) -> bytes:
        """Everything.  Raises: OSError: EFBIG beyond ``max_bytes``."""
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, "too large", str(path))
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class TsmReport:
    """``outblob`` is the quote or report; ``auxblob`` a certificate table, empty without one."""

    provider: str
    outblob: bytes
    auxblob: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigfsTsm:
    """The interface at ``base``."""

    base: Path = DEFAULT_BASE
    files: Files = field(default_factory=Files)
    sleep: Callable[[float], None] = time.sleep
    new_name: Callable[[], str] = lambda: f"starshade-{secrets.token_hex(8)}"

    def provider(self) -> str:
        """ "tdx_guest", "sev_guest" or another; asks for no quote.

        Raises: TeeUnavailable.
        """
        with _explained(self.base):
            return retried(self._provider, sleep=self.sleep)

    def report(self, report_data: bytes, *, privlevel: int | None = None) -> TsmReport:
        """Evidence over ``report_data``, 64 bytes; ``privlevel`` is SNP's VMPL.

        Raises: TeeUnavailable; ValueError: ``report_data`` of another length.
        """
        if len(report_data) != REPORT_DATA_BYTES:
            raise ValueError(f"report_data: {len(report_data)} bytes, want {REPORT_DATA_BYTES}")
        with _explained(self.base):
            return retried(lambda: self._attempt(report_data, privlevel), sleep=self.sleep)

    def _provider(self) -> str:
        with self._entry() as entry:
            return self._text(entry / "provider")

    def _attempt(self, report_data: bytes, privlevel: int | None) -> TsmReport:
        """Steps: 1. inputs; 2. outputs; 3. nobody else wrote in between."""
        with self._entry() as entry:
            generation = self._generation(entry)
            inputs = [("inblob", report_data)]  # 1
            if privlevel is not None:
                inputs.insert(0, ("privlevel", str(privlevel).encode("ascii")))
            for name, data in inputs:
                self.files.write(entry / name, data)
            report = TsmReport(  # 2
                provider=self._text(entry / "provider"),
                outblob=self.files.read(entry / "outblob", MAX_OUTBLOB_BYTES),
                auxblob=self._auxblob(entry),
            )
            if self._generation(entry) != generation + len(inputs):  # 3
                raise Changed
            return report

    @contextmanager
    def _entry(self) -> Iterator[Path]:
        entry = self.base / self.new_name()
        self.files.mkdir(entry)
        try:
            yield entry
        finally:
            with suppress(OSError):  # an entry left behind is harmless, hiding a result is not
                retried(lambda: self.files.rmdir(entry), sleep=self.sleep)

    def _generation(self, entry: Path) -> int:
        text = self._text(entry / "generation")
        if not text.isdecimal():
            raise OSError(errno.EPROTO, "generation is no number", str(entry))
        return int(text)

    def _text(self, path: Path) -> str:
        return self.files.read(path, MAX_TEXT_BYTES).decode("ascii", "replace").strip()

    def _auxblob(self, entry: Path) -> bytes:
        """Providers without one have no such file."""
        try:
            return self.files.read(entry / "auxblob", MAX_AUXBLOB_BYTES)
        except FileNotFoundError:
            return b""


@contextmanager
def _explained(base: Path) -> Iterator[None]:
    try:
        yield
    except Changed as err:
        raise TeeUnavailable(
            "configfs-tsm: another process kept using the same entry",
            next_step="find what else writes below " + str(base),
        ) from err
    except OSError as err:
        raise TeeUnavailable(
            f"configfs-tsm: {Path(str(err.filename or base)).name}: {err.strerror}",
            next_step=_NEXT_STEPS.get(err.errno or 0, _TRY_HOST),
        ) from err


_TRY_HOST = "look at the kernel log (dmesg), and on the host at the quote generation service"
_NEXT_STEPS = {
    errno.EACCES: "run as root, or give this user the configfs tree",
    errno.EPERM: "run as root, or give this user the configfs tree",
    errno.ENOENT: "mount configfs and load tdx-guest or sev-guest (Linux 6.7 or newer)",
    errno.ENXIO: "load the guest driver: modprobe tdx-guest, or modprobe sev-guest",
    errno.ETIMEDOUT: "the host did not answer: is its quote generation service running?",
}
