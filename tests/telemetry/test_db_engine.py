"""Is the database opened, migrated and locked as the writer and the readers need?"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Engine, inspect, make_url, text
from sqlalchemy.exc import OperationalError

from telemetry.db.engine import migrate, open_engine
from telemetry.db.models import Base
from telemetry.db.url import sqlite_url


def test_migrations_from_empty_make_the_models_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == "0002"


def test_nullability_follows_the_models(engine: Engine) -> None:
    found = inspect(engine)
    for table in Base.metadata.sorted_tables:
        columns = {column["name"]: column for column in found.get_columns(table.name)}
        expected = {column.name: column.nullable for column in table.columns}
        assert {name: column["nullable"] for name, column in columns.items()} == expected


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    migrate(engine)
    assert set(inspect(engine).get_table_names()) == {*Base.metadata.tables, "alembic_version"}


def test_several_processes_may_migrate_at_once(database_url: str) -> None:
    errors: list[Exception] = []
    gate = threading.Barrier(4)

    def one_process() -> None:
        engine = open_engine(database_url)
        gate.wait()
        try:
            migrate(engine)
        except OperationalError as err:
            errors.append(err)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=one_process) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_file_is_private_and_in_wal_mode(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "state folder" / "telemetry.db"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"


def test_readers_cannot_write(reader: Engine) -> None:
    with reader.connect() as connection, pytest.raises(OperationalError, match="readonly"):
        connection.execute(text("DELETE FROM span"))


def test_a_transaction_takes_the_write_lock_before_its_first_statement(
    engine: Engine, tmp_path: Path
) -> None:
    path = tmp_path / "state folder" / "telemetry.db"
    with (
        engine.begin(),
        closing(sqlite3.connect(path, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_memory_databases_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="file"):
        open_engine(url)


def test_url_of_an_odd_path(tmp_path: Path) -> None:
    path = tmp_path / "100% ü (x) ?mode=memory #1 %3F" / "telemetry.db"
    engine = open_engine(sqlite_url(path))
    migrate(engine)
    engine.dispose()
    assert path.is_file()


@given(folder=st.text(st.characters(exclude_characters="/\0"), min_size=1))
@example(folder="?a=b#c%3F@:&[x]")
@example(folder="caf\udce9")  # a name that is not UTF-8, as Python shows it
def test_url_of_any_path_reads_back(folder: str) -> None:
    path = Path("/state") / folder / "telemetry.db"
    parsed = make_url(sqlite_url(path))
    assert (parsed.database, parsed.query) == (str(path), {})
