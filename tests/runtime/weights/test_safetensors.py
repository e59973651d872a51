"""Does the safetensors reader give back what was written, and only typed errors for the rest?"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runtime.errors import ModelFileError
from runtime.weights import safetensors
from runtime.weights.safetensors import SafetensorsFile
from tests.support.tiny_folder import Array, safetensors_bytes, tiny_arrays, with_header

_DTYPES: Any = st.sampled_from([np.dtype("<f4"), np.dtype("<f2"), np.dtype("<u2")])
_WHOLE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def read(path: Path, data: bytes) -> dict[str, np.ndarray]:
    """Every tensor as float32."""
    path.write_bytes(data)
    file = SafetensorsFile(path)
    got = {
        name: tensor.type.dequantize(tensor.read()).reshape(tensor.shape)
        for name, tensor in file.tensors.items()
    }
    file.close()
    return got


def code_of(path: Path, data: bytes) -> str:
    with pytest.raises(ModelFileError) as caught:
        read(path, data)
    return caught.value.code


def header(entries: dict[str, Any], *, num_bytes: int = 8) -> bytes:
    return with_header(json.dumps(entries).encode(), bytes(num_bytes))


def as_float32(array: Array) -> Array:
    if array.dtype == np.uint16:  # bfloat16
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def test_tensors_survive_the_file(tmp_path: Path) -> None:
    arrays = tiny_arrays()
    got = read(tmp_path / "model.safetensors", safetensors_bytes(arrays))
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], as_float32(array))


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=30).filter(lambda name: name != "__metadata__"),
        hnp.arrays(
            _DTYPES,
            hnp.array_shapes(max_dims=4, max_side=5),
        ),
        max_size=6,
    )
)
def test_what_is_written_is_read(tmp_path: Path, arrays: dict[str, Array]) -> None:
    got = read(tmp_path / "model.safetensors", safetensors_bytes(arrays))
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], as_float32(array))


def test_the_library_writes_what_we_read(tmp_path: Path) -> None:
    library: Any = pytest.importorskip("safetensors.numpy")
    arrays = {name: array for name, array in tiny_arrays().items() if array.dtype != np.uint16}
    library.save_file(arrays, tmp_path / "library.safetensors", metadata={"format": "pt"})
    got = read(tmp_path / "ours.safetensors", (tmp_path / "library.safetensors").read_bytes())
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], as_float32(array))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "not_safetensors"),
        (b"1234567", "not_safetensors"),
        (b"GGUF" + bytes(60), "model_file_limit"),
        (with_header(b"[]", b""), "not_safetensors"),
        (b"\xff" * 64, "model_file_limit"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "model_file_limit"),
        ((100).to_bytes(8, "little") + b"{}", "model_file_truncated"),
        (with_header(b"{", b""), "model_file_malformed"),
        (with_header(b"{\xff}", b""), "model_file_malformed"),
        (with_header(b'{"a":' + b"[" * 50_000, b""), "model_file_malformed"),
        (with_header(b'{"a":NaN}', b""), "model_file_malformed"),
        (with_header(b'{"a":{"shape":[' + b"9" * 5000 + b"]}}", b""), "model_file_malformed"),
        (with_header(b'{"a":1,"a":1}', b""), "model_file_malformed"),
        (with_header(b"{}", b"x"), "model_file_malformed"),
        (header({"a": []}), "model_file_malformed"),
        (header({"a": _WHOLE | {"more": 1}}), "model_file_malformed"),
        (header({"": _WHOLE}), "model_file_limit"),
        (header({"a" * 300: _WHOLE}), "model_file_limit"),
        (header({"a": _WHOLE | {"dtype": "F8_E4M3"}}), "model_file_unsupported"),
        (header({"a": _WHOLE | {"dtype": ["F32"]}}), "model_file_unsupported"),
        (header({"a": _WHOLE | {"shape": [-2]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"shape": [2.0]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"shape": [True, 2]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"shape": []}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"shape": [0, 2]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"shape": [1, 1, 1, 1, 2]}}), "model_file_limit"),
        (header({"a": _WHOLE | {"shape": [1 << 61, 1 << 61]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"shape": [3]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"data_offsets": [8, 0]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"data_offsets": [0, 8, 8]}}), "model_file_malformed"),
        (header({"a": _WHOLE | {"data_offsets": [4, 12]}}), "model_file_truncated"),
        (header({"a": _WHOLE}, num_bytes=7), "model_file_truncated"),
        (header({"a": _WHOLE}, num_bytes=9), "model_file_malformed"),
        (header({"a": _WHOLE, "b": _WHOLE}), "model_file_malformed"),
        (
            header({"a": _WHOLE, "b": _WHOLE | {"data_offsets": [12, 20]}}, num_bytes=20),
            "model_file_malformed",
        ),
    ],
)
def test_broken_files_have_codes(tmp_path: Path, data: bytes, code: str) -> None:
    assert code_of(tmp_path / "broken.safetensors", data) == code


def test_the_header_is_bounded_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = safetensors_bytes(tiny_arrays())
    monkeypatch.setattr(safetensors, "MAX_HEADER_BYTES", 64)
    assert code_of(tmp_path / "long.safetensors", data) == "model_file_limit"
    monkeypatch.setattr(safetensors, "MAX_HEADER_BYTES", 1 << 20)
    monkeypatch.setattr(safetensors, "MAX_TENSORS", 3)
    assert code_of(tmp_path / "many.safetensors", data) == "model_file_limit"
