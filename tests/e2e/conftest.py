"""One installation with the tiny model serves every end-to-end test that does not break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import Installation, installation
from tests.support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Installation]:
    with installation(tmp_path_factory.mktemp("e2e"), tiny_model) as running:
        yield running
