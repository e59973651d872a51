"""A gateway and a worker with a tiny real model: a grammar makes its noise say something."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.worker.wiring import load_model_engine
from tests.gateway.support import HashEngine, Stack, running_stack, wait_until
from tests.support.tiny_model import gguf_bytes, tiny_metadata, tiny_tensors

TINY = "tiny"
CONTEXT_TOKENS = 2048  # a description of tools takes 500


class ModelEngine(HashEngine):
    """The model file that the configuration names."""

    load = staticmethod(load_model_engine)  # type: ignore[assignment]


def tiny_stack(folder: Path) -> Iterator[Stack]:
    model = folder / f"{TINY}.gguf"
    metadata = tiny_metadata() | {"llama.context_length": CONTEXT_TOKENS}
    model.write_bytes(gguf_bytes(metadata, tiny_tensors(seed=3)))
    with running_stack(
        folder,
        engine=ModelEngine(),
        wait=False,
        worker__model=str(model),
        worker__threads=1,
        engine__kv_cache_bytes=1 << 20,
    ) as stack:
        wait_until(lambda: stack.client.get("/readyz").status_code == 200, timeout_s=60)
        yield stack


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    yield from tiny_stack(tmp_path_factory.mktemp("tiny"))
