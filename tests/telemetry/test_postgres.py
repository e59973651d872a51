"""Does PostgreSQL answer what SQLite does?  Every test of the queries once more, by another URL."""

from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine

from telemetry.db.models import Base
from tests.support.postgres import fresh_database, running_postgres
from tests.telemetry.test_queries import *  # noqa: F403 - the tests are what is imported


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture
def database_url(server: str) -> Iterator[str]:
    """In the place of the SQLite file."""
    with fresh_database(server) as url:
        yield url


def test_migrations_build_the_models(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
