"""How is gateway.db opened and brought to the current schema?

SQLite runs in WAL mode and takes its write lock when a write transaction begins, so that two
writers wait for each other instead of failing half-way; other databases use their defaults.
"""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from telemetry.db.engine import enter_wal, upgrade

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_BUSY_TIMEOUT_MS: Final = 5000
_CONNECT_TIMEOUT_S: Final = 5
_ANSWER_TIMEOUT_MS: Final = 10_000  # of a server, for one statement; and for the network to it
_KEEPALIVE_S: Final = 5


class DriverMissing(SQLAlchemyError):
    """The database's driver is not installed."""

    next_step = "pip install 'starshade[postgres]'"


def open_engine(url: str) -> Engine:
    """An engine for `sqlite` or `postgresql+psycopg` URLs; opens no connection yet.

    Its exceptions never quote what was to be stored. A server that was restarted is connected to
    again, and so is a file that was replaced; a server that does not answer is given up after a
    while. Raises: DriverMissing.
    """
    if make_url(url).get_backend_name() == "sqlite":
        engine = create_engine(url, hide_parameters=True)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        if engine.url.database:
            _leave_lost_file(engine, Path(engine.url.database))
        return engine
    try:
        engine = create_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": _CONNECT_TIMEOUT_S,
                "tcp_user_timeout": _ANSWER_TIMEOUT_MS,
                "keepalives_idle": _KEEPALIVE_S,
                "keepalives_interval": _KEEPALIVE_S,
            },
        )
    except ModuleNotFoundError as err:
        raise DriverMissing(f"no module {err.name}") from None
    event.listen(engine, "connect", _configure_postgres)
    return engine


def writing(engine: Engine) -> Engine:
    """The same engine for write transactions."""
    return engine.execution_options(starshade_writes=True)


def migrate(engine: Engine) -> None:
    """Brings the schema to the newest revision; safe from several processes at once."""
    with writing(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        upgrade(connection, _MIGRATIONS)


def _configure_postgres(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """By a statement: what is in the URL's own `options` stays, and poolers take none."""
    cursor = connection.cursor()
    cursor.execute(f"SET statement_timeout = {_ANSWER_TIMEOUT_MS}")
    cursor.close()
    connection.commit()


def _configure_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    raw: Any = connection
    raw.isolation_level = None  # transactions begin where _begin_sqlite says, not implicitly
    raw.text_factory = _text
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    enter_wal(cursor)
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _leave_lost_file(engine: Engine, path: Path) -> None:
    """A file that was deleted or replaced takes writes until it is closed, and nobody reads them:
    each use begins with a look whether the path still leads to it, else the path is opened anew.
    """

    def note(_connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        record.info["file"] = _identity(path)

    def check(_connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object) -> None:
        if record.info["file"] != _identity(path):
            raise DisconnectionError("the database's file is not there any more")

    event.listen(engine, "connect", note)  # after what makes the file
    event.listen(engine, "checkout", check)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _text(stored: bytes) -> str:
    """SQLite takes any bytes for text; those that are none match nothing, and are no error."""
    return stored.decode("utf-8", "replace")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("starshade_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
