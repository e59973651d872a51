"""Are the ids of the default model those of the reference, and is its tokenizer quickly there?"""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.tokenizer import Tokenizer
from runtime.weights.gguf import GgufFile
from tests.support.resources import model_path, vectors_dir

NUM_TOKENS = 16_486  # of llama.cpp; without the split of digits it would be 16,500
MAX_TOKEN_S = 6e-6
MAX_LOAD_S = 0.4  # of processor time on a machine that does other things; see performance.md

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def file() -> Iterator[GgufFile]:
    with GgufFile(model_path()) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokenizer(file: GgufFile) -> Tokenizer:
    return Tokenizer(file.metadata)


@pytest.fixture(scope="module")
def text() -> str:
    path: Path = vectors_dir().parent / "bench" / "peers" / "workloads" / "ppl-text.txt"
    if not path.is_file():
        pytest.skip(f"no text at {path}")
    return path.read_text(encoding="utf-8")


def test_the_text_has_as_many_tokens_as_in_the_reference(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, special=False)
    assert len(token_ids) == NUM_TOKENS
    assert tokenizer.decode(token_ids) == text


def test_a_token_becomes_text_within_microseconds(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, special=False)
    detokenizer = tokenizer.detokenizer()
    start_s = time.thread_time()
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    used_s = time.thread_time() - start_s
    assert "".join(pieces) + detokenizer.flush() == text
    assert used_s / len(token_ids) < MAX_TOKEN_S


def test_file_and_tokenizer_are_quickly_there() -> None:
    gc.collect()
    start_s = time.process_time()
    with GgufFile(model_path()) as opened:
        Tokenizer(opened.metadata)
    assert time.process_time() - start_s < MAX_LOAD_S
