"""Do the compiled model and torch serve a folder alike, packed on load as asked for?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from runtime import backend
from runtime.backend import Backend, BackendSettings
from runtime.errors import InvalidConfig
from tests.support.decoders import load_reference
from tests.support.hf_models import make_model, save_model, tokens
from tests.support.plans import Chunk, build_plan
from tests.support.resources import native_module
from tests.support.tokenizers import byte_level_tokenizer, folder_contents

NUM_TOKENS = 40
TOLERANCE = 1e-4  # float32 sums in another order


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = save_model(make_model("qwen3"), tmp_path_factory.mktemp("folder"), dtype="bfloat16")
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for name, content in folder_contents(byte_level_tokenizer(pre_tokenizer)).items():
        (path / name).write_bytes(content)
    return path


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def load(kind: str, folder: Path, **options: Any) -> Backend:
    settings = BackendSettings(num_threads=1, precision="f32", kv_dtype="f32", **options)
    if kind == "torch":
        return backend._load_torch(folder, settings, None)
    native_module()
    loaded = backend.load_backend(folder, settings)
    assert loaded.kind == "native"
    return loaded


@pytest.mark.parametrize("kind", ["native", "torch"])
@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_folders_are_packed_as_asked_for(kind: str, quantize: str, folder: Path) -> None:
    loaded = load(kind, folder, quantize=quantize)
    vocab_size = loaded.tokenizer.vocab_size
    assert loaded.config.vocab_size == vocab_size < 512  # the rest is padding
    token_ids = [token_id % vocab_size for token_id in tokens(NUM_TOKENS)]
    chunk = Chunk(token_ids=token_ids, start=0, block_ids=[2, 0, 1], all_logits=True)
    got = loaded.new_runner(4).run(build_plan([chunk], block_size=16))
    rows = got.rows if kind == "native" else got
    want = load_reference(folder, quantize=quantize).whole(token_ids)[:, :vocab_size]
    assert np.abs(rows - want).max() < TOLERANCE
    exact = load_reference(folder).whole(token_ids)[:, :vocab_size]
    assert (np.abs(rows - exact).max() < TOLERANCE) == (quantize == "none")


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_unknown_packings_are_refused(kind: str, folder: Path) -> None:
    with pytest.raises(InvalidConfig):
        load(kind, folder, quantize="int2")
