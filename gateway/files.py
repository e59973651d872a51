"""How is a file written so that nobody else reads it and a crash never leaves half of it?"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600
PRIVATE_UMASK = 0o077


class NotPrivate(OSError):
    """A folder that has to be private is not."""


def make_dir(path: Path) -> None:
    """The folder exists; whatever is made for that is private. Raises: OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=PRIVATE_DIR, exist_ok=True)


def make_private_dir(path: Path) -> None:
    """The folder exists, and group and others may not enter it, even if it was there before.

    Raises: OSError when it cannot be made, is not a folder or belongs to someone else.
    """
    make_dir(path)
    if path.stat().st_mode & 0o077:
        path.chmod(PRIVATE_DIR)


def require_private_dir(path: Path) -> None:
    """Raises: NotPrivate when others may enter the folder, OSError when there is none."""
    mode = path.stat().st_mode
    if mode & 0o077:
        raise NotPrivate(errno.EPERM, "others may enter the folder, want mode 0700", str(path))


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Replaces `path` by `data`, durably: readers see the old bytes or the new, never a mix.

    Raises: OSError; nothing is left behind then.
    """
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created 0600
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        publish(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def publish(temporary: Path, path: Path) -> None:
    """Renames a finished, synced file to its final name and makes the rename durable."""
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for, then holds, an exclusive lock between processes. The file stays behind, empty."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
