"""Where do the processes of this state folder listen?  Each notes it while it runs.

The configuration of who asks may name another port than the flags that they were started with, and
behind that port another installation may answer.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gateway.config import StarshadeConfig
from gateway.files import make_private_dir, write_atomic
from gateway.paths import Paths

_MAX_BYTES: Final = 1024
_MAX_HOST_CHARS: Final = 255
_MAX_PORT: Final = 65_535
_MAX_STAT_BYTES: Final = 4096
_START_FIELD: Final = 19  # counted behind the name, which may hold spaces: field 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where one process listens, and which process that is: ids are used again, beginnings not."""

    pid: int
    began_ticks: int
    host: str
    port: int

    @property
    def is_alive(self) -> bool:
        return _began_ticks(self.pid) == self.began_ticks

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        try:
            found = cls(**json.loads(data))
        except (TypeError, ValueError, RecursionError):
            return None
        numbers = (found.pid, found.began_ticks, found.port)
        is_sound = all(type(number) is int for number in numbers) and type(found.host) is str
        is_sound = is_sound and found.pid > 0 and 0 < found.port <= _MAX_PORT
        return found if is_sound and 0 < len(found.host) <= _MAX_HOST_CHARS else None


@contextmanager
def noted(path: Path, *, host: str, port: int) -> Iterator[None]:
    """`path` says where this process listens, until it ends.

    It serves all the same where that cannot be written, or where another process has the name.
    """
    pid = os.getpid()
    began = _began_ticks(pid)
    is_ours = began is not None and find(path) is None
    if began is not None and is_ours:
        address = Address(pid=pid, began_ticks=began, host=host, port=port)
        with suppress(OSError):
            make_private_dir(path.parent)
            write_atomic(path, json.dumps(dataclasses.asdict(address)).encode() + b"\n")
    try:
        yield
    finally:
        if is_ours:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def find(path: Path) -> Address | None:
    """Where the process listens that noted it; None when it is gone, or never said so."""
    try:
        with path.open("rb") as file:
            address = Address.parse(file.read(_MAX_BYTES))
    except OSError:
        return None
    return address if address is not None and address.is_alive else None


def as_it_runs(config: StarshadeConfig) -> StarshadeConfig:
    """The same with the addresses of those processes of its state folder that run."""
    gateway, observatory = find_gateway(config.paths), find_observatory(config.paths)
    if gateway is not None:
        settings = dataclasses.replace(config.gateway, host=gateway.host, port=gateway.port)
        config = dataclasses.replace(config, gateway=settings)
    if observatory is not None:
        where = dataclasses.replace(
            config.observatory, host=observatory.host, port=observatory.port
        )
        config = dataclasses.replace(config, observatory=where)
    return config


def find_gateway(paths: Paths) -> Address | None:
    return find(paths.gateway_address)


def find_observatory(paths: Paths) -> Address | None:
    return find(paths.observatory_address)


def _began_ticks(pid: int) -> int | None:
    """When the process began, in ticks since the boot.  [proc(5), /proc/pid/stat]"""
    try:
        with Path(f"/proc/{pid}/stat").open("rb") as file:
            fields = file.read(_MAX_STAT_BYTES).rpartition(b")")[2].split()
        return int(fields[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None
