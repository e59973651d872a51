"""One installation with the tiny model serves every end-to-end test that does not break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import Installation, installation
from tests.support.tiny_model import gguf_bytes, tiny_metadata, tiny_tensors

LONG_CONTEXT = {"llama.context_length": 8192}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a context that takes a while to fill, for clients that leave before."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata() | LONG_CONTEXT, tiny_tensors()))
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Installation]:
    with installation(tmp_path_factory.mktemp("e2e"), tiny_model) as running:
        yield running
