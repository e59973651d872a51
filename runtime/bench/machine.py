"""Which machine and which versions made a number, and what else ran there?

Everything comes from files of the system; what a system does not tell is None or "unknown".
"""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_HASH_CHARS = 12
_GIB = 1 << 30


def describe_machine() -> str:
    """CPU, usable cores, memory, kernel and Python, in one line."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    return (
        f"{len(os.sched_getaffinity(0))} cores of {_cpu_name()}, {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def describe_versions(names: Iterable[str]) -> dict[str, str]:
    """Of the installed distributions among ``names``."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def find_commit(repository: Path = _REPOSITORY) -> str | None:
    """The checked-out commit, abbreviated; None outside a repository.  [gitrepository-layout(5)]"""
    try:
        folder = repository / ".git"
        if folder.is_file():  # a linked worktree
            folder = (repository / _after(folder.read_text(), "gitdir: ")).resolve()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head[:_HASH_CHARS]
        ref, common = _after(head, "ref: "), folder
        if (folder / "commondir").is_file():
            common = (folder / (folder / "commondir").read_text().strip()).resolve()
        if (common / ref).is_file():
            return (common / ref).read_text().strip()[:_HASH_CHARS]
        packed = (common / "packed-refs").read_text().splitlines()
    except OSError:
        return None
    found = (line.split()[0] for line in packed if line.endswith(f" {ref}"))
    return next(found, "")[:_HASH_CHARS] or None


def load_average() -> float:
    """Runnable processes, mean of the last minute."""
    return os.getloadavg()[0]


def busy_s() -> float:
    """Processor seconds of the whole machine since its start; 0 where it does not tell."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pids: Iterable[int]) -> int | None:
    """Memory of these processes, shared pages divided among their users; None if not told."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total or None


def peak_rss_bytes() -> int | None:
    """The most resident memory this process ever had; None if not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) << 10 for x in lines if x.startswith("VmHWM:")), None)


def process_tree(pid: int) -> list[int]:
    """``pid`` and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:  # grows while it is walked
        found += children.get(parent, [])
    return found


def _after(line: str, prefix: str) -> str:
    return line.strip().removeprefix(prefix)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.machine())
