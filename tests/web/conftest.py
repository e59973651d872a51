"""One observatory a test, its database in a folder whose name has a space, its clock fixed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.db.url import sqlite_url
from tests.telemetry.spans import SECOND
from tests.web.observatory import Observatory, serve
from web.app import create_app

NOW_NS = 1_796_000_000 * SECOND


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "state folder" / "telemetry.db")


@pytest.fixture
def observatory(database_url: str, tmp_path: Path) -> Iterator[Observatory]:
    app = create_app(database_url, static_dir=tmp_path, clock_ns=lambda: NOW_NS, queue_spans=1_000)
    with serve(app) as running:
        yield running
