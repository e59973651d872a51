"""A gateway.db of its own for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.gateway.support import open_database


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/gateway.db")
    yield engine
    engine.dispose()
