"""Does the migrated schema equal the models, and may it be migrated twice and back?"""

import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import SQLAlchemyError

import gateway.db.engine as db_engine
from gateway.db import migrate, open_engine
from gateway.db.models import Base


def test_migrations_build_the_models(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    migrate(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()


def test_a_percent_sign_in_the_installation_s_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ConfigParser, which Alembic reads its options with, takes it for an interpolation."""
    elsewhere = tmp_path / "100%" / "migrations"
    shutil.copytree(db_engine._MIGRATIONS, elsewhere)
    monkeypatch.setattr(db_engine, "_MIGRATIONS", elsewhere)
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    assert "api_key" in inspect(engine).get_table_names()
    engine.dispose()


def test_no_error_quotes_what_was_to_be_stored(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    with pytest.raises(SQLAlchemyError) as caught, engine.connect() as connection:
        connection.execute(text("SELECT * FROM nowhere WHERE hash = :h"), {"h": "hunter2"})
    assert "hunter2" not in str(caught.value)
    engine.dispose()


def test_the_last_migration_can_be_undone(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    config = Config()
    config.set_main_option("script_location", str(db_engine._MIGRATIONS))
    with db_engine.writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    engine.dispose()


def test_two_processes_may_switch_to_wal_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses one of them at once, its busy timeout notwithstanding."""
    refusals = 2

    class Racing(sqlite3.Cursor):
        def execute(self, sql: str, *parameters: Any) -> Self:
            nonlocal refusals
            if "journal_mode" in sql and refusals:
                refusals -= 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error
            return super().execute(sql, *parameters)

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Racing)

    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3.dbapi2, "connect", partial(connect, factory=Connection))
    migrate(engine)
    assert refusals == 0
    engine.dispose()
