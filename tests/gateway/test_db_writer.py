"""Does the writer keep what must be kept, and say at once what it could not store?"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from gateway.db import open_engine
from gateway.db.writer import DatabaseWriter, WriterFull
from tests.gateway.support import wait_until
from tests.support.patience import PATIENCE_S


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path}/w.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER UNIQUE)"))
    yield engine
    engine.dispose()


@contextlib.contextmanager
def running(writer: DatabaseWriter) -> Iterator[DatabaseWriter]:
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


def make(engine: Engine, *, max_queued: int = 1000) -> DatabaseWriter:
    return DatabaseWriter(
        engine, monotonic_ns=time.monotonic_ns, retry_s=0.02, max_queued=max_queued
    )


class Insert:
    """Inserts its number, unless the disk is full."""

    is_full = False

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, connection: Connection) -> None:
        connection.execute(text("INSERT INTO t VALUES (:n)"), {"n": self.number})
        if Insert.is_full:
            raise OperationalError("INSERT", {}, Exception("database or disk is full"))


def numbers(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT n FROM t ORDER BY rowid")).scalars())


@pytest.fixture
def full() -> Iterator[type[Insert]]:
    yield Insert
    Insert.is_full = False


def test_many_writes_are_committed_in_order(engine: Engine) -> None:
    commits = []
    writer = make(engine)
    writer.on_committed = lambda: commits.append(len(numbers(engine)))
    done = [writer.submit(Insert(number)) for number in range(600)]
    with running(writer):
        for future in done:
            future.result(timeout=PATIENCE_S)
    assert numbers(engine) == list(range(600))
    assert commits == [512, 600]


def test_a_write_at_fault_ends_no_other(engine: Engine) -> None:
    writer = make(engine)
    done = [writer.submit(Insert(number)) for number in (1, 2, 2, 3)]
    with running(writer):
        assert done[2].exception(timeout=PATIENCE_S) is not None
        assert [f.exception(timeout=PATIENCE_S) for f in (done[0], done[1], done[3])] == [None] * 3
    assert numbers(engine) == [1, 2, 3]
    assert not writer.is_failing


def test_a_full_disk_loses_nothing_that_is_kept(engine: Engine, full: type[Insert]) -> None:
    full.is_full = True
    writer = make(engine)
    with running(writer):
        kept, asked = writer.submit(Insert(1)), writer.submit(Insert(2), is_kept=False)
        assert isinstance(asked.exception(timeout=PATIENCE_S), OperationalError)
        wait_until(lambda: writer.is_failing)  # it says so for the moment until the next try
        assert not kept.done()
        full.is_full = False
        assert kept.exception(timeout=PATIENCE_S) is None
        wait_until(lambda: not writer.is_failing)
    assert numbers(engine) == [1]


def test_a_file_that_was_deleted_takes_no_writes(tmp_path: Path) -> None:
    state, kept = tmp_path / "state", tmp_path / "kept"
    state.mkdir()
    engine = open_engine(f"sqlite:///{state}/w.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER UNIQUE)"))
    with running(make(engine)) as writer:
        writer.submit(Insert(1)).result(PATIENCE_S)
        state.rename(kept)
        with pytest.raises(OperationalError, match="unable to open"):
            writer.submit(Insert(2), is_kept=False).result(PATIENCE_S)
        held = writer.submit(Insert(3))
        wait_until(lambda: writer.has_failed)
        kept.rename(state)
        held.result(PATIENCE_S)
    assert numbers(engine) == [1, 3]
    engine.dispose()


def test_another_file_in_its_place_is_used(tmp_path: Path) -> None:
    for name in ("w.db", "backup.db"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute("CREATE TABLE t (n INTEGER UNIQUE)")
    engine = open_engine(f"sqlite:///{tmp_path}/w.db")
    assert numbers(engine) == []
    engine.dispose()  # WAL and index go with the last connection
    with engine.connect() as kept:
        (tmp_path / "backup.db").replace(tmp_path / "w.db")
        kept.close()
        with engine.begin() as connection:
            Insert(1)(connection)
    with closing(sqlite3.connect(tmp_path / "w.db")) as database:
        assert database.execute("SELECT n FROM t").fetchall() == [(1,)]
    engine.dispose()


def test_what_cannot_be_stored_until_the_end_is_said_to_be_lost(
    engine: Engine, full: type[Insert], caplog: pytest.LogCaptureFixture
) -> None:
    full.is_full = True
    writer = make(engine)
    with running(writer):
        kept = writer.submit(Insert(1))
    assert isinstance(kept.exception(timeout=PATIENCE_S), WriterFull)
    assert "writes to the database are lost" in caplog.text


def test_no_more_waits_than_may(engine: Engine) -> None:
    writer = make(engine, max_queued=2)
    writer.submit(Insert(1))
    assert not writer.is_failing
    writer.submit(Insert(2))
    assert writer.is_failing
    with pytest.raises(WriterFull):
        writer.submit(Insert(3))
