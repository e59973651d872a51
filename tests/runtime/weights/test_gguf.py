"""Does the GGUF reader give back what was written, and only typed errors for what is broken?"""

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.errors import ModelFileError
from runtime.weights.gguf import MAX_ARRAY_ITEMS, GgufFile
from tests.support.tiny_model import F32, gguf_bytes, tiny_metadata, tiny_tensors, write_tiny_gguf

FUZZ_SEED = 20261130
_HEADER_BYTES = 4096  # where most lengths and types are


def read(path: Path, data: bytes) -> None:
    """Open, and touch every tensor."""
    path.write_bytes(data)
    with GgufFile(path) as file:
        for info in file.tensors.values():
            assert file.tensor(info).shape == info.shape


def code_of(path: Path, data: bytes) -> str:
    with pytest.raises(ModelFileError) as caught:
        read(path, data)
    return caught.value.code


def entry(kind: int, payload: bytes) -> bytes:
    """A file with one metadata entry ``k`` and no tensors."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    return head + struct.pack("<I", kind) + payload


def tensor_header(*, shape: tuple[int, ...], kind: int = F32, start: int = 0) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"t"
    head += struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
    return head + struct.pack("<IQ", kind, start) + bytes(64)


def test_metadata_and_tensors_survive_the_file(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    want_tensors = tiny_tensors()
    with GgufFile(path) as file:
        want: dict[str, Any] = tiny_metadata()
        for key, value in want.items():
            got = file.metadata[key]
            assert got == (pytest.approx(value) if isinstance(value, float) else value), key
        assert file.tensors.keys() == want_tensors.keys()
        for name, (array, kind) in want_tensors.items():
            got_array = file.tensor(file.tensors[name])
            assert got_array.shape == array.shape
            if kind == F32:
                np.testing.assert_array_equal(got_array, array)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "not_gguf"),
        (b"GGUX" + bytes(20), "not_gguf"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "not_gguf"),
        (b"GGUF" + struct.pack("<IQ", 3, 0), "model_file_truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), "model_file_limit"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63), "model_file_limit"),
        (entry(8, struct.pack("<Q", (1 << 64) - 1)), "model_file_limit"),
        (entry(8, struct.pack("<Q", 1000)), "model_file_truncated"),
        (entry(8, struct.pack("<Q", 1) + b"\xff"), "model_file_malformed"),
        (entry(13, b"\x00"), "model_file_malformed"),
        (entry(7, b"\x02"), "model_file_malformed"),
        (entry(9, struct.pack("<IQ", 4, MAX_ARRAY_ITEMS + 1)), "model_file_limit"),
        (entry(9, struct.pack("<IQ", 4, MAX_ARRAY_ITEMS)), "model_file_truncated"),
        (entry(9, struct.pack("<IQ", 9, 1) + bytes(12)), "model_file_malformed"),
        (tensor_header(shape=(1 << 40, 1 << 40)), "model_file_truncated"),
        (tensor_header(shape=(1,) * 5), "model_file_limit"),
        (tensor_header(shape=(0,)), "model_file_malformed"),
        (tensor_header(shape=(33,), kind=8), "model_file_malformed"),
        (tensor_header(shape=(1,), kind=99), "model_file_unsupported"),
        (tensor_header(shape=(1,), start=1), "model_file_malformed"),
        (tensor_header(shape=(1,), start=1 << 20), "model_file_truncated"),
    ],
)
def test_broken_files_have_codes(tmp_path: Path, data: bytes, code: str) -> None:
    assert code_of(tmp_path / "broken.gguf", data) == code


def test_repeated_keys_and_bad_alignment_are_refused(tmp_path: Path) -> None:
    once = entry(0, b"\x01")[24:]
    twice = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + once + once
    assert code_of(tmp_path / "twice.gguf", twice) == "model_file_malformed"
    odd = gguf_bytes(tiny_metadata() | {"general.alignment": 24}, tiny_tensors())
    assert code_of(tmp_path / "odd.gguf", odd) == "model_file_malformed"


def test_overlapping_tensors_are_refused(tmp_path: Path) -> None:
    data = bytearray(gguf_bytes({}, {n: (np.ones(8, np.float32), F32) for n in ("a", "b")}))
    second = data.index(b"b") + 1 + 4 + 8 + 4
    data[second : second + 8] = bytes(8)
    assert code_of(tmp_path / "overlap.gguf", bytes(data)) == "model_file_malformed"


def test_every_truncation_is_a_typed_error(tmp_path: Path) -> None:
    data = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    rng = random.Random(FUZZ_SEED)
    lengths = [*range(1, 64), *(rng.randrange(64, len(data) - 64) for _ in range(100))]
    for length in lengths:
        code_of(tmp_path / "cut.gguf", data[:length])


def test_flipped_bytes_give_typed_errors_or_a_readable_file(tmp_path: Path) -> None:
    data = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    rng = random.Random(FUZZ_SEED)
    num_refused = 0
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(_HEADER_BYTES)] = rng.randrange(256)
        try:
            with np.errstate(all="ignore"):
                read(tmp_path / "fuzz.gguf", bytes(broken))
        except ModelFileError:
            num_refused += 1
    assert num_refused > 50
