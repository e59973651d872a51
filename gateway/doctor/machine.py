"""Is this machine, and what was installed on it, fit for a worker and a gateway?"""

import ctypes
import importlib
import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import gateway
from attestation.collect.detect import detect_guest
from attestation.errors import PolicyError
from gateway.config import StarshadeConfig
from gateway.connections import MAX_CONNECTIONS
from gateway.doctor.finding import Finding, ok, warning, wrong
from gateway.process import configured_policy

NATIVE: Final = "runtime._native"
DASHBOARD: Final = "web/static/app.js"
CLOCK_SLACK: Final = timedelta(days=1)  # wheels carry the zone-less times of zip files
FILES_NEEDED: Final = 2 * MAX_CONNECTIONS + 256  # one for a client, one to its worker, and our own
_TIME_ERROR: Final = 5  # "the system clock is not synchronized"  [adjtimex(2)]
_TIMEX_BYTES: Final = 256  # struct timex has 208 on 64-bit Linux; all zero only asks


def native_module(name: str = NATIVE) -> Finding:
    """``name`` is the module to look for."""
    try:
        importlib.import_module(name)
    except ImportError as err:
        return warning(
            "compiled kernels",
            f"not usable ({type(err).__name__}): torch computes instead, several times slower",
            code="native_missing",
            next_step="install a C++17 compiler (apt install g++) and install Starshade again "
            "(pip install --force-reinstall --no-deps .)",
        )
    return ok("compiled kernels", "built for this Python")


def dashboard(root: Path | None = None) -> Finding:
    """``root`` is the folder that holds our packages."""
    root = Path(gateway.__file__ or "").parents[1] if root is None else root
    if (root / DASHBOARD).is_file():
        return ok("dashboard files", "bundled")
    return warning(
        "dashboard files",
        "not bundled: the dashboard's page will be empty",
        code="dashboard_missing",
        next_step="install Starshade again with Node.js 18 or a package index in reach",
    )


def clock(now: datetime, *, installed: datetime | None = None, state: int | None = None) -> Finding:
    """``installed`` is when our files were written, ``state`` what adjtimex said."""
    installed = _installed_at() if installed is None else installed
    if now < installed - CLOCK_SLACK:
        return wrong(
            "clock",
            f"it says {now:%Y-%m-%d %H:%M} UTC, before these files were installed",
            code="clock_wrong",
            next_step="set the clock (timedatectl set-ntp true): certificates and verdicts hang "
            "on it",
        )
    if (_clock_state() if state is None else state) == _TIME_ERROR:
        return warning(
            "clock",
            f"{now:%Y-%m-%d %H:%M} UTC, kept by nobody as far as the kernel knows",
            code="clock_unsynchronised",
            next_step="run an NTP client (timedatectl set-ntp true), unless the host keeps it",
        )
    return ok("clock", f"{now:%Y-%m-%d %H:%M} UTC")


def open_files(limit: int | None = None) -> Finding:
    """``limit`` is the hard one: our processes raise the soft one themselves."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if limit is None else limit
    if limit < 0 or limit >= FILES_NEEDED:
        return ok("open files", "no limit" if limit < 0 else f"up to {limit:,}")
    return warning(
        "open files",
        f"a process may open {limit:,}, {FILES_NEEDED:,} are needed under full load",
        code="few_open_files",
        next_step="raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit)",
    )


def tee(config: StarshadeConfig, *, root: Path = Path("/")) -> Finding:
    """Which Evidence would the worker of this configuration bring?"""
    guest = detect_guest(root)
    if config.worker.tee == "auto" and guest.interface != "none":
        return ok("TEE", f"{guest.kind} guest, asked through {guest.interface}")
    try:
        allows_simulated = configured_policy(config).allows_simulated
    except PolicyError:  # the check of the policy says so
        allows_simulated = False
    asked = "simulated, as worker.tee says" if config.worker.tee == "fake" else "none found here"
    if allows_simulated:
        return warning(
            "TEE",
            f"{asked}: evidence will be SIMULATED and protect nothing",
            code="tee_simulated",
            next_step="fine for development; anything else needs a TDX or SEV-SNP guest",
        )
    return wrong(
        "TEE",
        f"{asked}, and the policy {config.policy!r} refuses simulated evidence",
        code="tee_unavailable",
        next_step=guest.next_step or 'set worker.tee = "auto"',
    )


def _installed_at() -> datetime:
    return datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)


def _clock_state() -> int:
    """adjtimex(2) of a request that changes nothing; -1 where it is refused or missing."""
    try:
        answer: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return -1
    return answer
