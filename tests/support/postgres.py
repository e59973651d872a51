"""Where does a test find PostgreSQL?  A server of its own, where the programs are installed.

It listens on a Unix socket alone. PostgreSQL refuses to run as root; root runs it as `postgres`.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

_INSTALLED = "/usr/lib/postgresql/*/bin"
_OPTIONS = "-c listen_addresses= -c fsync=off -c max_connections=20 -c unix_socket_directories={}"


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """A URL that `gateway.db` takes; skips the test where there is no server to start."""
    pytest.importorskip("psycopg", reason="no driver: pip install 'starshade[postgres]'")
    programs, user = _programs(), _user()
    if programs is None or user is None:
        pytest.skip("no PostgreSQL server is installed, or no user to run it as")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    try:
        shutil.chown(folder, user)
        data = folder / "data"
        _run(user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "starshade")
        control = (str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"))
        _run(user, *control, "-o", _OPTIONS.format(folder), "start")
        try:
            yield f"postgresql+psycopg://starshade@/postgres?host={folder}"
        finally:
            _run(user, *control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """The URL of an empty database of this server."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text("CREATE DATABASE fresh"))
    yield server.replace("/postgres?", "/fresh?")
    with admin.connect() as connection:
        connection.execute(text("DROP DATABASE fresh WITH (FORCE)"))
    admin.dispose()


def _programs() -> Path | None:
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/").glob(_INSTALLED.removeprefix("/")))
    return folders[-1] if folders else None


def _user() -> str | None:
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return None


def _run(user: str, *command: str) -> None:
    as_user = {"user": user} if os.getuid() == 0 else {}
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **as_user,  # type: ignore[call-overload]
    )
