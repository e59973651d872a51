"""Where does a process listen, and is that place free?"""

import errno
import os
import socket
import stat
from contextlib import closing, suppress
from pathlib import Path

BACKLOG = 2048
# sockaddr_un.sun_path has 108 bytes, one of them the closing zero [unix(7)].
MAX_SOCKET_PATH_BYTES = 107
_PROBE_S = 1.0


class SocketTaken(Exception):
    """Another process listens where this one was told to."""

    code = "address_in_use"


def listen_unix(path: Path) -> socket.socket:
    """A listening Unix socket at `path`; one that a dead process left there is replaced.

    Raises: SocketTaken when someone answers there; OSError, when another kind of file is there too.
    """
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)  # a listener with a full backlog would block for ever
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):
            raise SocketTaken(f"another worker listens on {path}")
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file that is no socket is there", str(path))
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises: SocketTaken, OSError (no such address, not allowed)."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as err:
        listener.close()
        if err.errno == errno.EADDRINUSE:
            raise SocketTaken(f"port {port} on {host} is taken by another process") from err
        raise
    return listener


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now, for a process that has to be told one."""
    with closing(listen_tcp("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
