"""How is telemetry.db opened, so that one writer and many readers never meet a locked database?

SQLite: WAL, every write begins IMMEDIATE (it takes the lock at once instead of failing half way),
readers are separate connections that cannot write.  PostgreSQL: the same calls by URL.
"""

import sqlite3
import time
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_MS: Final = 10_000
READ_CONNECTIONS: Final = 8
WAL_PATIENCE_S: Final = 5.0
WAL_PAUSE_S: Final = 0.05
_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_MIGRATION_LOCK: Final = 0x5354_4152  # any number of our own, for pg_advisory_xact_lock


class DatabaseNewer(SQLAlchemyError):
    """The tables are of a version that this one does not know."""

    failure_code = "database_newer"
    next_step = "install the Starshade that made it, or name another database"


def open_engine(url: str, *, read_only: bool = False) -> Engine:
    """Engine for writing (one connection at a time) or for reading (a small pool).

    Creates a SQLite file (0600) and its folder (0700), not the tables: that is `migrate`.
    The engine's exceptions never quote rows.
    Raises: ValueError for a SQLite database in memory, which connections could not share.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, read_only=read_only)
    pool_size = READ_CONNECTIONS if read_only else 2
    engine = create_engine(parsed, pool_size=pool_size, hide_parameters=True)
    if read_only:
        engine = engine.execution_options(postgresql_readonly=True)
    return engine


def migrate(engine: Engine) -> None:
    """Bring the tables to today's shape; safe from several processes at once.

    Raises: DatabaseNewer.
    """
    with engine.begin() as connection:  # SQLite: BEGIN IMMEDIATE is the lock
        upgrade(connection, _MIGRATIONS)


def upgrade(connection: Connection, migrations: Path) -> None:
    """Run what is missing of a folder of Alembic's, in the transaction that `connection` is in.

    Raises: DatabaseNewer.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _MIGRATION_LOCK})
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as err:
        if isinstance(err.__cause__, ResolutionError):
            raise DatabaseNewer("a newer version made its tables") from err
        raise


def _database_file(url: URL) -> str:
    if not url.database or url.database == ":memory:":
        raise ValueError("telemetry.db is a file: want sqlite:///PATH")
    return url.database


def _open_sqlite(url: URL, *, read_only: bool) -> Engine:
    path = Path(_database_file(url))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)  # tenants and models are nobody else's business
    pool_size = READ_CONNECTIONS if read_only else 1
    engine = create_engine(url, pool_size=pool_size, max_overflow=0, hide_parameters=True)
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    @event.listens_for(engine, "connect")
    def _on_connect(dbapi_connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        dbapi_connection.isolation_level = None  # the driver must not begin on its own
        cursor = dbapi_connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        if read_only:
            cursor.execute("PRAGMA query_only = ON")
        else:
            enter_wal(cursor)
            cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def enter_wal(cursor: DBAPICursor) -> None:
    """Switch to WAL; SQLite does not wait by itself when another process is switching too.

    Raises: sqlite3.OperationalError, when the database stays locked for WAL_PATIENCE_S or at once
    for anything else.
    """
    give_up_s = time.monotonic() + WAL_PATIENCE_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as err:
            is_locked = err.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the primary code
            if not is_locked or time.monotonic() >= give_up_s:
                raise
        else:
            return
        time.sleep(WAL_PAUSE_S)
