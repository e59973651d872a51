"""A migrated telemetry.db of each test's own, in a folder whose name has a space."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from telemetry.db.engine import migrate, open_engine
from telemetry.db.url import sqlite_url


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "state folder" / "telemetry.db")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    migrate(opened)
    yield opened
    opened.dispose()


@pytest.fixture
def reader(engine: Engine, database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url, read_only=True)
    yield opened
    opened.dispose()
