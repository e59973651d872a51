"""A gateway.db of its own for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gateway.db import migrate, open_engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    yield engine
    engine.dispose()
